"""Optional packages: every place that needs one names an extra that the project declares."""

import ast
import tomllib
from pathlib import Path

import pytest

from umpteen import extras
from umpteen.errors import MissingExtra

ROOT = Path(__file__).parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


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
