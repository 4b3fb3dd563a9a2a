"""Imports go to lower layers, or to a listed neighbour in the same one."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

import umpteen

ROOT = Path(umpteen.__file__).parent
LAYERS = (
    {
        "display", "errors", "escape", "extras", "files", "head_names", "locks", "log_lines",
        "predictions", "registry", "sorted_unique", "text_input", "types",
    },
    {"data", "compute", "metrics"},
    {"objectives", "index", "store"},
    {"model", "config"},
    {"ranking"},
    {
        "arrow_predictions", "client", "evaluation", "hub", "label_indexes", "model_card",
        "per_label", "prediction_records", "predictor", "predictor_changes",
        "run_files",
        "run_folder", "scoring", "suggestions", "judgements", "teachers",
    },
    {"training", "export"},
    {"report", "study", "plan"},
    {"cli", "serving", "sklearn", "ray", "__main__"},
)  # fmt: skip
"""From the bottom up; at most three packages each, beside single modules."""
BASE = LAYERS[0]
WITHIN_A_LAYER = {
    ("study", "report"), ("cli", "serving"), ("__main__", "cli"),
    ("evaluation", "predictor"), ("evaluation", "scoring"), ("label_indexes", "run_folder"),
    ("predictor", "label_indexes"), ("predictor", "run_folder"), ("predictor", "run_files"),
    ("predictor_changes", "run_files"),
    ("run_files", "run_folder"),
    ("evaluation", "per_label"), ("prediction_records", "predictor"),
    ("judgements", "predictor"), ("judgements", "teachers"), ("teachers", "predictor"),
    ("suggestions", "predictor"), ("arrow_predictions", "predictor"),
    ("arrow_predictions", "run_files"),
    ("hub", "model_card"), ("hub", "run_folder"), ("model_card", "run_folder"),
    ("predictor", "predictor_changes"), ("predictor_changes", "hub"),
}  # fmt: skip
"""Importer and imported, where both are of one layer above the first."""
FILES = sorted(path for path in ROOT.rglob("*.py"))


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module):
    """The file or folder directly below the package, or '' for the package itself."""
    return module.split(".")[1] if "." in module else ""


def layer_of(part):
    return next(number for number, parts in enumerate(LAYERS, 1) if part in parts)


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def imports_of(path, *, at_top_only=False, types=False):
    """Every module a file imports, by full name; with those for type checkers if ``types``."""
    tree = tree_of(path)
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    found = []

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.If)
                and "TYPE_CHECKING" in ast.unparse(child.test)
                and not types
            ):
                continue
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if inside and at_top_only:
                continue
            if isinstance(child, ast.Import):
                found.extend(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - child.level + 1]
                name = ".".join([*base, child.module or ""]) if child.level else child.module
                # "from umpteen import predictor" imports a module, not a name.
                found.extend(f"{name}.{a.name}" if name == "umpteen" else name for a in child.names)
            visit(child)

    visit(tree)
    return sorted(set(found))


def ours(path, **options):
    return [name for name in imports_of(path, **options) if name.split(".")[0] == "umpteen"]


def identify(path):
    return str(path.relative_to(ROOT))


def over_all_files(rule):
    """Make one test of a rule that yields what is wrong with a file."""

    @functools.wraps(rule)
    def test():
        wrong = [f"{identify(path)}: {problem}" for path in FILES for problem in rule(path)]
        assert not wrong, "\n".join(["", *wrong])

    del test.__wrapped__  # or pytest would look for a fixture named path
    return test


@over_all_files
def test_imports_go_to_lower_layers(path):
    here = part_of(module_of(path))
    # The package's own file only names what is loaded on first use.
    for name in ours(path) if here else ():
        there = part_of(name)
        if there in {"", "__version__"}:
            continue
        if layer_of(there) > layer_of(here):
            yield f"imports {name} from a higher layer"
        same_layer = here != there and layer_of(here) == layer_of(there) > 1
        if same_layer and (here, there) not in WITHIN_A_LAYER:
            yield f"imports {name} from its own layer, which WITHIN_A_LAYER does not list"


def test_a_layer_has_at_most_three_packages():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert all(len(parts & packages) <= 3 for parts in LAYERS)


def test_packages_do_not_import_each_other_in_a_circle_even_lazily():
    graph = {}
    for path in FILES:
        here = part_of(module_of(path))
        graph.setdefault(here, set()).update(part_of(name) for name in ours(path, types=True))
    del graph[""]
    remaining = {part: found - {part, "", "__version__"} for part, found in graph.items()}
    while free := {part for part, found in remaining.items() if not found & set(remaining)}:
        remaining = {part: found for part, found in remaining.items() if part not in free}
    assert not remaining, remaining


def test_every_part_has_a_layer():
    parts = {part_of(module_of(path)) for path in FILES} - {""}
    assert parts == set().union(*LAYERS)
    assert sum(map(len, LAYERS)) == len(parts)


def test_the_contributing_page_has_these_layers():
    page = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    rows = [row.split("|") for row in page.splitlines() if re.match(r"\| [1-9] \|", row)]
    documented = [set() for _ in LAYERS]
    for _, number, names, *_ in rows:
        documented[int(number) - 1] |= set(re.findall(r"`(\w+)`", names))
    assert documented == [layer - {"__main__"} for layer in LAYERS]


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


@over_all_files
def test_config_is_read_by_training_studies_and_the_command_line_alone(path):
    reads = "config" in {part_of(name) for name in ours(path)}
    if reads and part_of(module_of(path)) not in {"config", "training", "cli", "study", ""}:
        yield "imports config; take plain arguments instead"


@over_all_files
def test_objectives_and_metrics_need_arrays_and_the_base_alone(path):
    here = part_of(module_of(path))
    if here not in {"objectives", "metrics"}:
        return
    for name in imports_of(path):
        top = name.split(".")[0]
        arrays = top in {"torch", "numpy", "scipy", *sys.stdlib_module_names}
        if not arrays and part_of(name) not in BASE | {here}:
            yield f"imports {name}"


@over_all_files
def test_only_sharding_speaks_to_other_ranks(path):
    if path == ROOT / "compute" / "distributed" / "sharding.py":
        return
    attributes = {ast.unparse(n) for n in ast.walk(tree_of(path)) if isinstance(n, ast.Attribute)}
    for name in [*imports_of(path), *sorted(attributes)]:
        if name.startswith("torch.distributed"):
            yield f"uses {name}; call compute/distributed/sharding.py"


@over_all_files
def test_light_files_do_not_import_torch_at_the_top(path):
    here = part_of(module_of(path))
    lowest = here == "" or layer_of(here) == 1
    if not (lowest or here in {"cli", "metrics", "store"} or "data/formats" in str(path)):
        return
    heavy = {"torch", "transformers", "tokenizers", "safetensors"}
    if lowest or here == "cli":
        heavy |= {"scipy", "pyarrow", "matplotlib"}
    names = {name.split(".")[0] for name in imports_of(path, at_top_only=True)}
    if names & heavy:
        yield f"imports {', '.join(sorted(names & heavy))} at the top; import inside a function"


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
    assert not [m for m in seen if part_of(m) in {"training", "config"}]


@over_all_files
def test_nothing_is_pickled(path):
    names = {name.split(".")[0] for name in imports_of(path)}
    for name in sorted(names & {"pickle", "joblib", "dill", "shelve", "marshal"}):
        yield f"imports {name}; write safetensors, JSON or NumPy arrays"
    for call in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        options = {k.arg: ast.unparse(k.value) for k in call.keywords}
        pickled = name == "np.load" and options.get("allow_pickle") != "False"
        if pickled or name in {"torch.load", "torch.save"}:
            yield f"line {call.lineno}: {ast.unparse(call)} may read or write a pickle"


def test_the_walk_sees_what_it_should():
    """The rules above are worth nothing if the walk finds no imports."""
    step = ours(ROOT / "training" / "step.py")
    assert "umpteen.compute.precision" in step
    assert "umpteen.objectives.base" in step
    inner = ours(ROOT / "training" / "factories.py")
    assert "umpteen.model.frugal" in inner  # imported inside a function
    assert "umpteen.model.frugal" not in ours(ROOT / "training" / "factories.py", at_top_only=True)


def test_a_rule_names_every_file_that_breaks_it():
    @over_all_files
    def broken(path):
        if path.name in {"files.py", "types.py"}:
            yield "is there"

    with pytest.raises(AssertionError, match=r"files\.py: is there\s+types\.py: is there"):
        broken()
