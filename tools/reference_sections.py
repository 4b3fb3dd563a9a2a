"""The generated sections of the reference, one function each. Read from the code alone."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import json
import pkgutil
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import resources
from types import ModuleType
from typing import Any

import click
from reference_markdown import docstring, item, paragraphs, plain, wrap

MAX_SIGNATURE = 96
"""Longer signatures have one parameter per line."""
MAX_DEFAULT = 60
"""Longer default values are left out."""


def settings() -> str:
    """Every setting of ``RunConfig``: default, accepted values, meaning."""
    from umpteen.config.schema import RunConfig

    notes = _attribute_docs(RunConfig)
    top, sections = [], []
    for field in dataclasses.fields(RunConfig):
        kind = typing.get_type_hints(RunConfig)[field.name]
        if not dataclasses.is_dataclass(kind):
            top += _setting("", field, notes.get(field.name, ""))
            continue
        blocks = [f"## {field.name}", *docstring(kind)]
        inner = _attribute_docs(kind)
        for each in dataclasses.fields(kind):
            blocks += _setting(f"{field.name}.", each, inner.get(each.name, ""))
        sections += blocks
    return "\n\n".join(["## The whole run", *top, *sections])


def _setting(prefix: str, field: Any, note: str) -> list[str]:
    from umpteen.config.checks import CHOICES, RANGES

    key = f"{prefix}{field.name}"
    default = field.default
    if default is dataclasses.MISSING:
        default = field.default_factory()
    facts = [f"Default: `{_toml(default)}`." if default is not None else "Not set by default."]
    if key in CHOICES:
        facts.append("One of " + ", ".join(f"`{choice}`" for choice in CHOICES[key]) + ".")
    limits = [text for keys, text, _ in RANGES if key in keys]
    if limits:
        facts.append(" and ".join(limits).capitalize() + ".")
    return [f"### `{key}`", wrap(plain(note)), wrap(" ".join(facts))]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return repr(value).replace("'", '"')


def _attribute_docs(kind: Any) -> dict[str, str]:
    """Read the string after each field of a class."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found, last = {}, ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last] = str(node.value.value)
            last = ""
    return found


def commands() -> str:
    """Every command with its arguments and options, from click."""
    from umpteen.cli import main

    return "\n\n".join(block for each in _commands(main, "umpteen") for block in each)


def _commands(command: click.Command, name: str) -> Iterator[list[str]]:
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        if name != "umpteen":
            yield [f"## {name}", *_help(command)]
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from _commands(inner, f"{name} {each}")
        return
    level = "##" if name.count(" ") == 1 else "###"
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    blocks = [f"{level} {name}", f"```text\n{usage}\n```", *_help(command)]
    options = [_option(each, context) for each in command.params if isinstance(each, click.Option)]
    if options:
        blocks.append("\n".join(options))
    yield blocks


def _help(command: click.Command) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    return [
        f"```text\n{part.replace(chr(8), '').strip(chr(10))}\n```" if "\b" in part else each
        for part in re.split(r"\n\s*\n", text)
        for each in paragraphs(part)[:1]
    ]


def _option(option: click.Option, context: click.Context) -> str:
    names, text = option.get_help_record(context) or ("", "")
    return item(f"`{' '.join(names.split())}`" + (f": {text}" if text else ""))


def http_routes() -> str:
    """Every HTTP route with its fields, from the OpenAPI document."""
    from fastapi import FastAPI

    import umpteen.serving

    app = FastAPI()
    for found in pkgutil.iter_modules(umpteen.serving.__path__):
        module = importlib.import_module(f"umpteen.serving.{found.name}")
        if hasattr(module, "router"):
            app.include_router(module.router)
    document = app.openapi()
    schemas = document.get("components", {}).get("schemas", {})
    blocks = []
    for path, methods in sorted(document["paths"].items()):
        for method, about in methods.items():
            blocks += _route(f"{method.upper()} {path}", about, schemas)
    return "\n\n".join(blocks)


def _route(name: str, about: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    blocks = [f"## {name}", *paragraphs(plain(about.get("description", "")))]
    query = [_field(each["name"], each["schema"] | each) for each in about.get("parameters", [])]
    if query:
        blocks += ["Query parameters:", "\n".join(query)]
    body = _schema_of(about.get("requestBody", {}), schemas)
    if body:
        blocks += ["Request fields:", "\n".join(_fields(body, schemas))]
    answer = _schema_of(about["responses"].get("200", {}), schemas)
    if answer:
        fields = "\n".join(_fields(answer, schemas)).replace(", required)", ")")
        blocks += ["Response fields:", fields]
    errors = [code for code in about["responses"] if code not in ("200", "422")]
    if errors:
        blocks.append(f"Errors: {', '.join(sorted(errors))}.")
    return blocks


def _schema_of(part: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any] | None:
    schema = part.get("content", {}).get("application/json", {}).get("schema", {})
    return schemas.get(schema.get("$ref", "").rpartition("/")[2])


def _fields(schema: dict[str, Any], schemas: dict[str, Any], prefix: str = "") -> list[str]:
    required = schema.get("required", [])
    lines = []
    for name, about in schema.get("properties", {}).items():
        lines.append(_field(f"{prefix}{name}", {**about, "required": name in required}))
        inner, many = _reference(about)
        if inner in schemas and prefix.count(".") < 2:
            lines += _fields(schemas[inner], schemas, f"{prefix}{name}{'[]' if many else ''}.")
    return lines


def _field(name: str, about: dict[str, Any]) -> str:
    facts = [_type(about)]
    if about.get("required"):
        facts.append("required")
    elif about.get("default") is not None:
        facts.append(f"default `{json.dumps(about['default'])}`")
    text = about.get("description", "")
    facts = [fact for fact in facts if fact]
    return item(f"`{name}` ({', '.join(facts)})" + (f": {plain(text)}" if text else ""))


def _reference(about: dict[str, Any]) -> tuple[str, bool]:
    """Return the schema that a field refers to, and whether it is a list of it."""
    for each in (about, *about.get("anyOf", [])):
        if "$ref" in each:
            return each["$ref"].rpartition("/")[2], False
        if "$ref" in each.get("items", {}):
            return each["items"]["$ref"].rpartition("/")[2], True
    return "", False


def _type(about: dict[str, Any]) -> str:
    if "anyOf" in about:
        kinds = [_type(each) for each in about["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in about:
        return " or ".join(f"`{value}`" for value in about["enum"])
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}"
    return "object" if "$ref" in about else str(about.get("type", "any"))


def metrics() -> str:
    """Every metric of ``METRICS`` with its definition."""
    from umpteen.metrics import DEFAULT_METRICS, METRICS
    from umpteen.registry import resolve

    blocks = []
    for name in sorted(METRICS, key=str.lower):
        kind = resolve(METRICS, name, kind="metric")
        blocks += [f"## {name}", *_without_fields(docstring(kind))]
    chosen = ", ".join(f"`{name}`" for name in DEFAULT_METRICS)
    return "\n\n".join([wrap(f"Computed where no metrics are named: {chosen}."), *blocks])


def tables() -> str:
    """Names of every table that can be extended, with one line each."""
    from umpteen.data.formats import FORMATS
    from umpteen.index import INDEXES
    from umpteen.metrics import METRICS
    from umpteen.model import ENCODERS
    from umpteen.objectives import OBJECTIVES, REDUCTIONS
    from umpteen.ranking import RETRIEVERS
    from umpteen.registry import resolve

    known: dict[str, dict[str, str]] = {
        "Objectives": OBJECTIVES,
        "Reductions": REDUCTIONS,
        "Encoders": ENCODERS,
        "Indexes": INDEXES,
        "Retrievers": RETRIEVERS,
        "Metrics": METRICS,
        "Data formats": FORMATS,
    }
    blocks = []
    for title, table in known.items():
        lines = [
            item(f"`{name}`: {_first_line(resolve(table, name, kind='part'), target)}")
            for name, target in table.items()
        ]
        blocks += [f"## {title}", "\n".join(lines)]
    return "\n\n".join(blocks)


def _first_line(part: Any, target: str) -> str:
    own = part
    if not (isinstance(part, ModuleType) or inspect.isclass(part) or inspect.isfunction(part)):
        own = type(part)
        module = importlib.import_module(target.split(":")[0])
        if own.__module__ != module.__name__ or not callable(part):
            own = module  # a value of the module, such as a family of formats
    return plain((inspect.getdoc(own) or "").split("\n\n")[0])


def presets() -> str:
    """Every preset: its summary and its settings."""
    from umpteen.config.settings import preset_names

    folder = resources.files("umpteen").joinpath("config", "presets")
    blocks = []
    for name in preset_names():
        text = folder.joinpath(f"{name}.toml").read_text("utf-8")
        opening = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
        summary, *differences = [line[1:].strip() for line in opening][1:]
        values = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        blocks += [
            f"## {name}",
            *paragraphs("\n\n".join([summary, " ".join(differences)]).strip()),
            f"```toml\n{values.strip()}\n```",
        ]
    return "\n\n".join(blocks)


def known_data_sets() -> str:
    """Data sets with published settings, and the presets that have numbers of their own."""
    from umpteen.config.known_datasets import dataset_names, dataset_text

    lines = []
    for name in dataset_names():
        own = tomllib.loads(dataset_text(name)).get("presets", {})
        lines.append(item(f"`{name}`: " + ", ".join(f"`{preset}`" for preset in own)))
    return "\n".join(lines)


def formats() -> str:
    """Every data format and the files that it is recognised by."""
    from umpteen.data.formats import FORMATS, LOOKED_FOR, READ_ONLY

    return "\n".join(
        item(f"`{name}`: {LOOKED_FOR[name]}" + (" (read only)" if name in READ_ONLY else ""))
        for name in sorted({**FORMATS, **READ_ONLY})
    )


def run_folder() -> str:
    """Files of a run folder, from the docstring of the module that writes it."""
    from umpteen import run_folder as runs

    rows = re.findall(r"^RUN/(\S+)\s+(.*(?:\n {10,}.*)*)", runs.__doc__ or "", re.M)
    return "\n".join(item(f"`{name}`: {plain(text)}") for name, text in rows)


def python_names() -> str:
    """Public functions and classes with their signatures."""
    import umpteen
    import umpteen.ray
    from umpteen.client import Client
    from umpteen.evaluation import Evaluation
    from umpteen.predictions import Prediction
    from umpteen.sklearn import UmpteenClassifier, ranking_scorer

    public = [getattr(umpteen, name) for name in umpteen.__all__ if not name.startswith("_")]
    named = [(f"umpteen.{each.__name__}", each) for each in public]
    named += [(f"{k.__module__}.{k.__name__}", k) for k in (Prediction, Evaluation, Client)]
    named += [(f"umpteen.sklearn.{k.__name__}", k) for k in (UmpteenClassifier, ranking_scorer)]
    cluster = (umpteen.ray.predict_files, umpteen.ray.ArrowPredictor)
    named += [(f"umpteen.ray.{k.__name__}", k) for k in cluster]
    return "\n\n".join(block for name, each in named for block in _name(name, each))


def _name(name: str, part: Any) -> list[str]:
    blocks = [f"## {name}", _signature(name.rpartition(".")[2], part)]
    blocks += _without_fields(docstring(part))
    if not inspect.isclass(part):
        return blocks
    fields = _attribute_docs(part) if dataclasses.is_dataclass(part) else {}
    if fields:
        blocks.append("\n".join(item(f"`{key}`: {plain(text)}") for key, text in fields.items()))
    members: dict[str, Any] = {}
    for base in part.__mro__:
        if base.__module__.startswith("umpteen."):
            members = {**members, **{k: v for k, v in vars(base).items() if k not in members}}
    for key, each in members.items():
        if key.startswith("_") or not (inspect.getdoc(each) or "").strip():
            continue
        call = each.__func__ if isinstance(each, classmethod | staticmethod) else each
        if inspect.isfunction(call):
            blocks += [f"### {part.__name__}.{key}", _signature(key, call), *docstring(call)]
        elif isinstance(each, property | cached_property):
            blocks += [f"### {part.__name__}.{key}", *docstring(each)]
    return blocks


def _signature(name: str, part: Any) -> str:
    signature = inspect.signature(part)
    kept = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    parameters = list(_parameters(kept))
    result = signature.return_annotation
    known = not inspect.isclass(part) and result is not inspect.Signature.empty
    tail = f" -> {result}" if known else ""
    text = f"{name}({', '.join(parameters)}){tail}"
    if len(text) > MAX_SIGNATURE:
        inner = ",\n    ".join(parameters)
        text = f"{name}(\n    {inner},\n){tail}"
    return f"```text\n{text}\n```"


def _parameters(kept: Iterable[inspect.Parameter]) -> Iterator[str]:
    star = False
    for parameter in kept:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        text = parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = repr(parameter.default).replace("'", '"')
            text += f" = {default if len(default) < MAX_DEFAULT else '...'}"
        yield text


def _without_fields(blocks: list[str]) -> list[str]:
    """Leave out the constructor line that dataclasses without a docstring have."""
    return [block for block in blocks if not re.match(r"\w+\(.*\)$", block)]
