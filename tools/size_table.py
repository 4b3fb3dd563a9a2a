"""Print the size of the code at git revisions: files, lines, functions, packages, imports.

    python tools/size_table.py REVISION ... [--source src/umpteen] [--functions]

Every revision is one column; files are read from git, so no checkout is needed. Complexity counts
paths as mccabe does: one for a function, one more for each ``if``, loop and nested function, and
the ``except`` clauses and one more for each ``try``. Unlike mccabe, it counts branches in
``finally`` and each ``case`` of a ``match``. A function's lines are those from ``def`` to its end.
Import edges are pairs of packages, imports inside functions and for type checkers included.
``--functions`` lists those over the limits.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_LINES, MAX_COMPLEXITY = 60, 15
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Function:
    """One function or method."""

    place: str
    lines: int
    complexity: int


@dataclass
class Size:
    """What is counted of one revision."""

    files: dict[str, int] = field(default_factory=dict)
    """Lines of each file."""
    functions: list[Function] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    """The first line of each package's docstring."""
    edges: set[tuple[str, str]] = field(default_factory=set)
    """Package and package that it imports."""


def complexity(function: ast.AST) -> int:
    """Count the paths through a function."""
    return 1 + sum(_paths(node) for node in ast.iter_child_nodes(function))


def _paths(node: ast.AST) -> int:
    own = 0
    if isinstance(node, (ast.If, *LOOPS, *FUNCTIONS)):
        own = 1
    elif isinstance(node, (ast.Try, ast.TryStar)):
        own = len(node.handlers) + 1
    elif isinstance(node, ast.Match):
        own = len(node.cases)
    elif isinstance(node, ast.expr):
        return 0
    return own + sum(_paths(child) for child in ast.iter_child_nodes(node))


def functions_of(path: str, tree: ast.Module) -> Iterator[Function]:
    """Functions and methods; a nested function counts as lines and paths of the outer one."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                assert child.end_lineno is not None
                lines = child.end_lineno - child.lineno + 1
                yield Function(f"{path}:{prefix}{child.name}", lines, complexity(child))
            elif isinstance(child, ast.ClassDef):
                pending.append((f"{prefix}{child.name}.", child))
            elif not isinstance(child, ast.expr):
                pending.append((prefix, child))


def imported(path: str, tree: ast.Module, root: str) -> Iterator[str]:
    """Yield dotted names under the root package that a module imports, wherever it does."""
    inside = [root, *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{each.name}" for each in node.names)


def read_sources(revision: str, source: str) -> dict[str, str]:
    """Return the Python files of a revision by their paths under the source folder."""
    archive = subprocess.run(
        ["git", "archive", revision, source], capture_output=True, check=True
    ).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files.getmembers():
            if member.isfile() and member.name.endswith(".py"):
                content = files.extractfile(member)
                assert content is not None
                found[member.name.removeprefix(f"{source}/")] = content.read().decode("utf-8")
    return found


def measure(sources: dict[str, str], root: str) -> Size:
    """Count everything in some files."""
    size = Size()
    trees = {path: ast.parse(text) for path, text in sources.items()}
    for path, tree in trees.items():
        if path.count("/") == 1 and path.endswith("/__init__.py"):
            size.packages[path.split("/")[0]] = (ast.get_docstring(tree) or "").split("\n")[0]
    for path, tree in trees.items():
        size.files[path] = len(sources[path].splitlines())
        size.functions += functions_of(path, tree)
        package = path.split("/")[0]
        for name in imported(path, tree, root):
            other = name.split(".")[1] if name.startswith(f"{root}.") else ""
            if package in size.packages and other in size.packages and other != package:
                size.edges.add((package, other))
    return size


def longest(functions: Iterable[Function]) -> str:
    """The longest function with its lines."""
    found = max(functions, key=lambda each: each.lines)
    return f"{found.lines} (`{found.place}`)"


def figures(size: Size) -> dict[str, str]:
    """One column of the table."""
    lines = size.files.values()
    file = max(size.files, key=lambda path: size.files[path])
    by_complexity = max(size.functions, key=lambda each: each.complexity)
    cycles = {pair for pair in size.edges if pair[::-1] in size.edges}
    return {
        "files": f"{len(size.files):,}",
        "lines": f"{sum(lines):,}",
        "median lines of a file": f"{statistics.median(lines):.0f}",
        "longest file": f"{size.files[file]} (`{file}`)",
        "functions and methods": f"{len(size.functions):,}",
        "median lines of a function": f"{statistics.median(f.lines for f in size.functions):.0f}",
        "longest function": longest(size.functions),
        f"functions over {MAX_LINES} lines": f"{len(too_long(size))}",
        "highest complexity": f"{by_complexity.complexity} (`{by_complexity.place}`)",
        f"functions of complexity over {MAX_COMPLEXITY}": f"{len(too_complex(size))}",
        "packages": f"{len(size.packages)}",
        "import edges between packages": f"{len(size.edges)}",
        "pairs of packages that import each other": f"{len(cycles) // 2}",
    }


def too_long(size: Size) -> list[Function]:
    """Functions over the limit of lines, the longest first."""
    found = [each for each in size.functions if each.lines > MAX_LINES]
    return sorted(found, key=lambda each: -each.lines)


def too_complex(size: Size) -> list[Function]:
    """Functions over the limit of complexity, the highest first."""
    found = [each for each in size.functions if each.complexity > MAX_COMPLEXITY]
    return sorted(found, key=lambda each: -each.complexity)


def print_table(sizes: dict[str, Size]) -> None:
    """Print the figures, one column for each revision."""
    columns = {name: figures(size) for name, size in sizes.items()}
    print("| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |")


def print_packages(size: Size) -> None:
    """Print each package with its sentence and what it imports."""
    print("| package | files | lines | holds | imports |\n|---|---|---|---|---|")
    for package, sentence in sorted(size.packages.items()):
        own = [n for path, n in size.files.items() if path.startswith(f"{package}/")]
        others = ", ".join(sorted(other for one, other in size.edges if one == package)) or "-"
        print(f"| `{package}` | {len(own)} | {sum(own):,} | {sentence} | {others} |")


def main() -> None:
    """Read the revisions and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", default=["HEAD"])
    parser.add_argument("--source", default="src/umpteen", help="the folder of the package")
    parser.add_argument("--functions", action="store_true", help="list those over the limits")
    options = parser.parse_args()
    root = options.source.rstrip("/").split("/")[-1]
    sizes = {
        name: measure(read_sources(name, options.source.rstrip("/")), root)
        for name in options.revisions
    }
    print_table(sizes)
    for name, size in sizes.items():
        print(f"\nPackages of {name}:\n")
        print_packages(size)
        if options.functions:
            print(f"\nFunctions of {name} over {MAX_LINES} lines or complexity {MAX_COMPLEXITY}:\n")
            for each in dict.fromkeys([*too_long(size), *too_complex(size)]):
                print(f"- `{each.place}`: {each.lines} lines, complexity {each.complexity}")


if __name__ == "__main__":
    main()
