"""Documents and docstrings speak of what exists: links, files, names, commands, settings."""

import ast
import importlib
import re
from functools import reduce
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "umpteen"
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
NOTES = sorted((ROOT / "bench" / "notes").glob("*.md"))
EXPLANATION = sorted((ROOT / "docs" / "explanation").glob("*.md"))
READERS = [document for document in DOCUMENTS if document.parent != ROOT]
HISTORY = ("as it was before", "measured elsewhere", "since then", "the first version answered")
"""Belongs to bench/notes."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
PLACE = re.compile(r"`((?:\w+/)*\w+\.py)(?::([\w.]+))?`")
FILE_ENDINGS = ("jsonl", "json", "txt", "csv", "tsv", "parquet", "noun", "verb", "adj", "adv")
"""train.jsonl is a file, and so is WordNet's data.noun."""


def each(documents):
    """Turn a check of one document into one test of all of them."""

    def decorate(check):
        def test():
            for document in documents:
                try:
                    check(document)
                except Exception as error:
                    raise AssertionError(f"{document.relative_to(ROOT)}: {error}") from error

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


each_document = each(DOCUMENTS)


def text_of(document):
    return document.read_text("utf-8")


def code_of(document):
    """Blocks and inline code, which is where commands are."""
    text = text_of(document)
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", prose_of(document))])


def prose_of(document):
    """Without blocks of code, whose names may be the reader's own."""
    return re.sub(r"```.*?```", "", text_of(document), flags=re.S)


@each([*DOCUMENTS, *NOTES])
def test_links_lead_somewhere(document):
    targets = [t for t in LINK.findall(text_of(document)) if not t.startswith("http")]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


def test_every_document_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in seen or document.suffix != ".md" or not document.is_file():
            continue
        seen.add(document)
        waiting += [
            (document.parent / target).resolve() for target in LINK.findall(text_of(document))
        ]
    assert set(DOCUMENTS) <= seen


@each_document
def test_files_and_names_in_the_documents_exist(document):
    for file, name in PLACE.findall(prose_of(document)):
        if "my_" in file:
            continue  # the reader's own
        places = [base / file for base in (SOURCE, SOURCE.parent, ROOT) if (base / file).is_file()]
        places += SOURCE.rglob(file)  # "base.py" in a page about indexes
        assert places, f"{document.name} names {file}"
        if name:
            parts = places[0].relative_to(SOURCE).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            module = importlib.import_module(".".join(("umpteen", *parts)))
            reduce(getattr, name.split("."), module)


def test_the_path_names_its_stations_and_prediction_fits_on_one_screen():
    page = text_of(ROOT / "docs" / "explanation" / "path.md")
    found = {file for file, _ in PLACE.findall(page)}
    assert {"data/pool.py", "training/step.py", "predictor.py", "index/exact.py"} <= found
    assert len(found) >= 20
    prediction = page.split("## Prediction")[1].split("## Training")[0]
    assert len(prediction.splitlines()) <= 40


@each_document
def test_commands_in_the_documents_exist(document):
    from umpteen.cli import COMMANDS

    named = re.findall(r"(?:^|\| |-m )umpteen ([a-z][a-z-]*)", code_of(document), re.M)
    assert set(named) <= set(COMMANDS)


def options_of(words):
    """The options of the command that some words begin with."""
    import click

    from umpteen.cli import main

    command = main
    for word in words:
        if not isinstance(command, click.Group):
            break
        context = click.Context(command)
        command = command.get_command(context, word) or command
    names = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return names | {"--help", "--version"}


@each_document
def test_options_in_the_documents_exist(document):
    code = code_of(document).replace("\\\n", " ")
    for line in re.findall(r"(?:^|[|`] |-m )umpteen ([a-z][^|#`\n]*)", code, re.M):
        words = line.split()
        used = {re.split("[=)]", word)[0] for word in words if word.startswith("--")}
        unknown = used - options_of(words)
        assert not unknown, f"umpteen {line}: {unknown}"


@each_document
def test_settings_in_the_documents_exist(document):
    import dataclasses

    from umpteen.config.checks import get
    from umpteen.config.schema import RunConfig

    config = RunConfig()
    sections = {
        field.name
        for field in dataclasses.fields(RunConfig)
        if dataclasses.is_dataclass(getattr(config, field.name))
    }
    if document.name == "http.md":
        return  # fields of requests, not settings
    pattern = re.compile(rf"(?:`|--set )((?:{'|'.join(sections)})\.[a-z_]+)(?=[`=])")
    for key in pattern.findall(text_of(document)):
        if key.split(".")[1] not in FILE_ENDINGS:
            get(config, key)


def test_defaults_in_the_page_on_objectives_are_the_defaults():
    from umpteen.config.checks import get
    from umpteen.config.schema import RunConfig

    page = text_of(ROOT / "docs" / "explanation" / "objectives.md")
    table = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \((\w+)[^)]*\)", page, re.M)
    found = {key: value for key, value in table if value != "preset"}
    assert len(found) >= 4
    for key, value in found.items():
        assert str(get(RunConfig(), key)).lower() == value


def test_the_page_on_objectives_names_every_objective_and_reduction():
    from umpteen.objectives import OBJECTIVES, REDUCTIONS

    page = text_of(ROOT / "docs" / "explanation" / "objectives.md")
    for name in (*OBJECTIVES, *REDUCTIONS):
        assert re.search(rf"(?:`|=){re.escape(name)}`", page), name


@each_document
def test_python_in_the_documents_is_python(document):
    for block in re.findall(r"```python\n(.*?)```", text_of(document), flags=re.S):
        ast.parse(block)


def test_the_guide_lists_every_command():
    from umpteen.cli import COMMANDS

    table = (
        (ROOT / "docs" / "guide" / "index.md").read_text("utf-8").partition("## Every command")[2]
    )
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `umpteen ")]
    named = {word for cell in cells for word in re.findall(r"[\w-]+", cell)}
    assert set(COMMANDS) <= named


def test_every_decision_names_its_price():
    page = text_of(ROOT / "docs" / "explanation" / "decisions.md")
    decisions = page.split("\n## ")[1:]
    assert len(decisions) >= 8
    assert all("*Price.*" in decision for decision in decisions)


def test_the_change_log_begins_with_what_is_not_released():
    headings = re.findall(r"^## (.+)$", text_of(ROOT / "CHANGELOG.md"), re.M)
    assert headings[0] == "0.1.0, unreleased"
    assert len(text_of(ROOT / "CHANGELOG.md").splitlines()) <= 150


def test_pages_have_the_length_of_their_kind():
    lengths = {page.name: len(text_of(page).splitlines()) for page in EXPLANATION}
    del lengths["index.md"]
    assert max(lengths.values()) <= 150, lengths
    assert min(lengths.values()) >= 60, lengths
    assert len(text_of(ROOT / "docs" / "results.md").splitlines()) <= 250
    assert len(text_of(ROOT / "README.md").splitlines()) < 120


@each_document
def test_prose_wraps_at_100_columns(document):
    """Tables and pictures cannot wrap."""
    long = [
        line
        for line in prose_of(document).splitlines()
        if len(line) > 100 and not line.startswith(("|", "!["))
    ]
    assert not long


def test_readers_meet_no_history():
    found = [
        f"{document.relative_to(ROOT)}: {phrase}"
        for document in READERS
        for phrase in HISTORY
        if phrase in " ".join(text_of(document).lower().split())
    ]
    assert not found


def test_the_site_lists_every_page():
    listed = set(re.findall(r"[\w/-]+\.md", text_of(ROOT / "mkdocs.yml"))) - {"index.md"}
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in READERS}


# Docstrings. Ruff asks that an Args section leaves no parameter out; here, that it has no others.


def parameters(node):
    given = node.args
    names = [a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return [name for name in names if name not in ("self", "cls")]


def documented(docstring):
    """The names in an Args section, in order."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", docstring, re.M)
    return re.findall(r"^    (\w+):", section.group(1), re.M) if section else []


def documented_functions():
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = documented(ast.get_docstring(node) or "")
                if names:
                    yield f"{file.relative_to(SOURCE)}:{node.name}", node, names


def test_args_sections_name_the_parameters_in_their_order():
    wrong, n = [], 0
    for place, node, names in documented_functions():
        function = node
        if isinstance(node, ast.ClassDef):
            inner = [f for f in node.body if isinstance(f, ast.FunctionDef)]
            function = next((f for f in inner if f.name == "__init__"), None)
            if function is None:
                continue
        n += 1
        if names != parameters(function):
            wrong.append(f"{place}: {names} against {parameters(function)}")
    assert n > 100
    assert not wrong
