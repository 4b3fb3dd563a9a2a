"""Imports obey the layers: arrows point down, leaves do not know each other."""

import ast
import sys
from pathlib import Path

import pytest

import umpteen

ROOT = Path(umpteen.__file__).parent
LAYERS = (
    {
        "head_names", "types", "errors", "config", "config_rules", "settings", "registry",
        "extras", "files",
    },
    {"compute", "objectives", "index", "metrics", "data", "store"},
    {"model"},
    {"ranking"},
    {
        "build", "choosing", "client", "evaluation", "known_datasets", "label_indexes", "plan",
        "predictor",
        "report", "runs", "scoring", "study", "training",
    },
    {"cli", "serving", "__main__"},
)  # fmt: skip
"""From the bottom up. The second are leaves: they do not import each other."""
BASE, LEAVES = LAYERS[0], LAYERS[1]
BETWEEN_LEAVES = {("store", "umpteen.data.labels")}
"""Leaf and the one module of another leaf that it may import: a value without behaviour."""
FILES = sorted(path for path in ROOT.rglob("*.py"))


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module):
    """The file or folder directly below the package, or '' for the package itself."""
    return module.split(".")[1] if "." in module else ""


def layer_of(part):
    return next(number for number, parts in enumerate(LAYERS, 1) if part in parts)


def imports_of(path, *, at_top_only=False):
    """Every module a file imports, by full name; imports for type checkers alone do not count."""
    tree = ast.parse(path.read_text("utf-8"))
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    found = []

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if inside and at_top_only:
                continue
            if isinstance(child, ast.Import):
                found.extend(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - child.level + 1]
                name = ".".join([*base, child.module or ""]) if child.level else child.module
                # "from umpteen import config" imports a module, not a name.
                found.extend(f"{name}.{a.name}" if name == "umpteen" else name for a in child.names)
            visit(child)

    visit(tree)
    return sorted(set(found))


def ours(path, **options):
    return [name for name in imports_of(path, **options) if name.split(".")[0] == "umpteen"]


def identify(path):
    return str(path.relative_to(ROOT))


every_file = pytest.mark.parametrize("path", FILES, ids=identify)


@every_file
def test_arrows_point_down_and_leaves_do_not_know_each_other(path):
    here = part_of(module_of(path))
    if here == "":
        return  # the package's own file only names what is loaded on first use
    for name in ours(path):
        there = part_of(name)
        if there in {"", "__version__"}:
            continue
        assert layer_of(there) <= layer_of(here), f"{identify(path)} imports {name} from above"
        if layer_of(here) == layer_of(there) == 2 and (here, name) not in BETWEEN_LEAVES:
            assert here == there, f"{identify(path)} and {name} are both leaves"


def test_every_part_has_a_layer():
    parts = {part_of(module_of(path)) for path in FILES} - {""}
    assert parts == set().union(*LAYERS)
    assert sum(map(len, LAYERS)) == len(parts)


def test_no_modules_import_each_other_in_a_circle():
    by_module = {module_of(path): path for path in FILES}
    # A package may import its own modules and be imported by them for its tables.
    graph = {
        module: [
            name
            for name in ours(path, at_top_only=True)
            if name in by_module and not module.startswith(f"{name}.")
        ]
        for module, path in by_module.items()
    }
    done, open_ = set(), []

    def visit(module):
        if module in done:
            return
        assert module not in open_, " -> ".join([*open_[open_.index(module) :], module])
        open_.append(module)
        for name in graph[module]:
            visit(name)
        done.add(open_.pop())

    for module in graph:
        visit(module)
    assert "umpteen.ranking.examples" in graph["umpteen.ranking.snapshot"]


@every_file
def test_config_stops_at_build_training_and_the_command_line(path):
    if {"umpteen.config", "umpteen.settings"} & set(ours(path)):
        allowed = {"build", "training", "cli", "settings"}
        assert part_of(module_of(path)) in allowed, identify(path)


@every_file
def test_objectives_and_metrics_need_arrays_and_the_base_alone(path):
    here = part_of(module_of(path))
    if here not in {"objectives", "metrics"}:
        return
    for name in imports_of(path):
        top = name.split(".")[0]
        allowed = top in {"torch", "numpy", "scipy", *sys.stdlib_module_names} or part_of(name) in (
            BASE - {"config"}
        ) | {here}
        assert allowed, f"{identify(path)} imports {name}"


@every_file
def test_only_sharding_speaks_to_other_ranks(path):
    if path == ROOT / "compute" / "sharding.py":
        return
    assert not [n for n in imports_of(path) if n.startswith("torch.distributed")]
    attributes = {ast.unparse(n) for n in ast.walk(ast.parse(path.read_text("utf-8")))
                  if isinstance(n, ast.Attribute)}  # fmt: skip
    assert not [name for name in attributes if name.startswith("torch.distributed")]


@every_file
def test_light_files_do_not_import_torch_at_the_top(path):
    here = part_of(module_of(path))
    lowest = here == "" or layer_of(here) == 1
    if not (lowest or here in {"cli", "metrics", "store"} or "data/formats" in str(path)):
        return
    heavy = {"torch", "transformers", "tokenizers", "safetensors"}
    if lowest or here == "cli":
        heavy |= {"scipy", "pyarrow", "matplotlib"}
    names = {name.split(".")[0] for name in imports_of(path, at_top_only=True)}
    assert not names & heavy, identify(path)


def test_the_predictor_does_not_need_training():
    """Not even by way of what it imports."""
    seen, waiting = set(), ["umpteen.predictor"]
    by_module = {module_of(path): path for path in FILES}
    while waiting:
        module = waiting.pop()
        if module in seen or module not in by_module:
            continue
        seen.add(module)
        waiting.extend(ours(by_module[module]))
        # A name of a package may be a module of it.
        waiting.append(module.rpartition(".")[0] if module.count(".") > 1 else "")
    assert "umpteen.predictor" in seen
    assert not [m for m in seen if part_of(m) in {"training", "build", "config"}]


@every_file
def test_nothing_is_pickled(path):
    names = {name.split(".")[0] for name in imports_of(path)}
    assert not names & {"pickle", "joblib", "dill", "shelve", "marshal"}
    calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func)
        assert name not in {"torch.load", "torch.save"}, identify(path)
        if name == "np.load":
            options = {k.arg: ast.unparse(k.value) for k in call.keywords}
            assert options.get("allow_pickle") == "False", identify(path)


def test_the_walk_sees_what_it_should():
    """The rules above are worth nothing if the walk finds no imports."""
    step = ours(ROOT / "training" / "step.py")
    assert "umpteen.compute.precision" in step
    assert "umpteen.objectives.base" in step
    inner = ours(ROOT / "build.py")
    assert "umpteen.model.frugal.tables" in inner  # imported inside a function
    assert "umpteen.model.frugal.tables" not in ours(ROOT / "build.py", at_top_only=True)
