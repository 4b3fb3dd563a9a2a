"""The size table: lines, complexity, packages and import edges, counted by hand here."""

import ast
from pathlib import Path

import pytest
from tools import size_table


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("pass", 1),
        ("return [x for x in y if x] or (1 if y else 2)", 1),
        ("if a:\n  pass\nelif b:\n  pass\nelse:\n  pass", 3),
        ("for x in y:\n  while x:\n    pass\nelse:\n  pass", 3),
        ("try:\n  pass\nexcept A:\n  pass\nexcept B:\n  pass\nelse:\n  pass", 4),
        ("try:\n  pass\nfinally:\n  pass", 2),
        ("with a:\n  if b:\n    pass", 2),
        ("def inner():\n  if a:\n    pass", 3),
        ("match a:\n  case 1:\n    pass\n  case _:\n    pass", 3),
    ],
)
def test_complexity_counts_the_paths(body, paths):
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    function = ast.parse(f"def f():\n{lines}").body[0]
    assert size_table.complexity(function) == paths


def test_lines_packages_and_edges_are_those_of_the_files():
    sources = {
        "one/__init__.py": '"""The first.\n\nMore of it.\n"""\n',
        "one/deep/file.py": "def f():\n    from root.two import g\n\n    return g\n",
        "two/__init__.py": '"""The second."""\n',
        "two/file.py": "class A:\n  def m(self):\n    from ..one import x\n\n    return x\n",
        "three/__init__.py": "import os\nimport root.three.file\nfrom root import alone, two\n",
        "alone.py": "import root.one\n",
    }
    size = size_table.measure(sources, "root")
    assert size.packages == {"one": "The first.", "two": "The second.", "three": ""}
    assert size.edges == {("one", "two"), ("two", "one"), ("three", "two")}
    assert {(each.place, each.lines) for each in size.functions} == {
        ("one/deep/file.py:f", 4),
        ("two/file.py:A.m", 4),
    }
    found = size_table.figures(size)
    assert found["files"] == "6"
    assert found["lines"] == "18"
    assert found["pairs of packages that import each other"] == "1"
    assert found["functions over 60 lines"] == "0"


ROOT = Path(__file__).parent.parent
LONG_FUNCTIONS = {"compute/kernels/row_kernel.py:_update"}
"""Kernels: Triton compiles a function as a whole."""
MAX_FILE_LINES = 400


def test_functions_and_files_are_short():
    source = ROOT / "src" / "umpteen"
    files = {
        path.relative_to(source).as_posix(): path.read_text("utf-8")
        for path in source.rglob("*.py")
    }
    size = size_table.measure(files, "umpteen")
    long = {each.place: each.lines for each in size.functions if each.lines > size_table.MAX_LINES}
    assert set(long) == LONG_FUNCTIONS, long
    assert not [name for name, lines in size.files.items() if lines > MAX_FILE_LINES]
    assert not [each for each in size.functions if each.complexity > size_table.MAX_COMPLEXITY]
