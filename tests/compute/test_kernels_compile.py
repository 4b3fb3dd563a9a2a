import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need triton")

import umpteen

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("kernel_signatures.py")


def launched_kernels() -> set[str]:
    """module:name of every kernel that a grid is put on: ``_name[grid](...)``."""
    found = set()
    package = Path(umpteen.__file__).parent
    for file in package.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        kernels = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and any("triton.jit" in ast.unparse(mark) for mark in node.decorator_list)
        }
        launched = {
            node.func.value.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and isinstance(node.func.value, ast.Name)
        }
        module = ".".join(file.relative_to(package).with_suffix("").parts)
        found |= {f"{module}:{name}" for name in kernels & launched}
    return found


def test_every_kernel_compiles_for_a_gpu_and_is_listed(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(done.stdout.split()) == launched_kernels()
