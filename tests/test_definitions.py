"""One definition per name: classes, extension tables and constants of ``src/umpteen``."""

import ast
from collections import defaultdict
from pathlib import Path

import umpteen

SOURCE = Path(umpteen.__file__).parent
FORMAT_PARTS = {"FIELDS", "FILES", "HOLDS", "LABELS", "UNIT"}
"""What every module of ``data/formats`` defines for itself."""


def definitions():
    """Yield file, name and node of classes and assignments at the top of each module."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield name, node.name, node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield name, node.targets[0].id, node.value
            elif (
                isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name)
            ):
                yield name, node.target.id, node.value


def repeated(chosen):
    places = defaultdict(list)
    for file, key in chosen:
        places[key].append(file)
    return {key: files for key, files in places.items() if len(files) > 1}


def test_no_two_classes_have_one_name():
    classes = ((file, name) for file, name, node in definitions() if isinstance(node, ast.ClassDef))
    assert repeated(classes) == {}


def test_the_name_of_a_table_of_extensions_means_nothing_else():
    found = list(definitions())
    tables = {
        name
        for _, name, node in found
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Registry"
    }
    assert {"FORMATS", "INDEXES", "METRICS", "OBJECTIVES", "RETRIEVERS"} <= tables
    assert repeated((file, name) for file, name, _ in found if name in tables) == {}


def test_a_constant_is_defined_once():
    """Equal numbers may be chance; equal words, tuples and patterns of one name are not."""
    constants = (
        (file, f"{name} = {ast.unparse(node)}")
        for file, name, node in definitions()
        if name.isupper() and not isinstance(node, ast.ClassDef) and not is_number(node)
        if not (file.startswith("data/formats/") and name in FORMAT_PARTS)
    )
    assert repeated(constants) == {}


def is_number(node):
    inner = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return isinstance(node, ast.Constant | ast.BinOp | ast.UnaryOp) and all(
        isinstance(each.value, int | float) for each in inner
    )
