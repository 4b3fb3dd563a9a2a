"""Optional packages: every place that needs one names an extra that the project declares."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from umpteen import extras
from umpteen.errors import MissingExtra

ROOT = Path(__file__).parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]

ALSO = {"uvicorn", "fastapi", "prometheus_client", "wordllama", "sentence_transformers", "triton"}
"""Optional packages that no call of ``require`` names."""


def required():
    """Every call of ``require`` with a constant name: the file, the package, the extra."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require":
                extra = {k.arg: getattr(k.value, "value", None) for k in node.keywords}["extra"]
                yield file.name, getattr(node.args[0], "value", None), extra


def test_every_extra_that_a_message_names_is_declared():
    found = list(required())
    assert len(found) > 30
    assert {extra for _, _, extra in found} <= set(DECLARED)


def test_a_missing_package_is_a_sentence_with_the_command_to_install_it():
    with pytest.raises(MissingExtra) as raised:
        extras.require("umpteen_no_such_package", extra="onnx")
    assert "umpteen[onnx]" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_without_optional_packages_the_rest_works_and_integrations_name_their_extra(
    tiny_data_folder, tiny_bert, tmp_path
):
    packages = {package.partition(".")[0] for _, package, _ in required() if package} | ALSO
    script = Path(__file__).parent / "without_extras.py"
    words = [",".join(packages), str(tiny_data_folder), str(tiny_bert), str(tmp_path)]
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["label"].startswith("L")
    # Extras that only gather others, or that only make something faster or are for developers.
    assert set(found["answers"]) == set(DECLARED) - {"all", "demo", "dev", "docs", "gpu"}
    for extra, answers in found["answers"].items():
        for answer in answers:
            assert answer.startswith("exit 1: umpteen: "), answer
            assert f"install it with: pip install 'umpteen[{extra}]'" in answer
