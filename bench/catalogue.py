"""Every command with its subjects, and the command line over them.

A subject is a module with ``add_arguments(parser)`` and ``main(options)``. It is imported when it
is called; the lists of ``--help`` are read from the first lines of the files.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

COMMANDS = {
    "training": "training runs, their steps, and what they read",
    "search": "nearest-label search and one text to its labels",
    "objectives": "objectives over all labels",
    "serving": "the service and the store of changes",
    "ensemble": "the ensemble, its lexical scorers and added labels",
    "peers": "other libraries on the same data",
}
SUBJECTS: dict[str, tuple[str, ...]] = {
    "training": (
        "default",
        "variants",
        "time-budget",
        "studies",
        "minutes",
        "small-data",
        "held-out",
        "warm-start",
        "rerank",
        "gpu",
        "step",
        "frugal-step",
        "packed",
        "label-table",
        "gandalf",
        "label-texts",
        "tokens",
        "metrics",
        "synthetic",
        "growth",
        "ranks",
        "large-data",
    ),
    "search": (
        "exact",
        "many-labels",
        "refresh",
        "mining",
        "indexes",
        "beyond-memory",
        "latency",
        "backends",
    ),
    "objectives": ("classifier", "dual"),
    "serving": ("load", "bulk", "soak", "kills", "start", "store", "untrained-run"),
    "ensemble": (
        "cost",
        "added-labels",
        "added-vectors",
        "lexical",
        "characters",
        "prior",
        "rerank",
        "choice",
        "names",
        "curve",
    ),
    "peers": ("table", "lexical", "estimators", "annif"),
}


def module_name(command: str, subject: str) -> str:
    return f"bench.{command}.{subject.replace('-', '_')}"


def summary(command: str, subject: str) -> str:
    """Read the first line of a subject's file without importing it."""
    file = Path(__file__).parent / command / f"{subject.replace('-', '_')}.py"
    doc = ast.get_docstring(ast.parse(file.read_text("utf-8")))
    assert doc, f"{file} has no docstring"
    return doc.splitlines()[0]


def commands_help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    usage = "usage: python -m bench COMMAND SUBJECT [options]"
    rest = "python -m bench COMMAND --help lists subjects; bench/README.md says what each needs."
    return "\n".join([usage, "", "commands:", *lines, "", rest])


def subjects_help(command: str) -> str:
    width = max(map(len, SUBJECTS[command]))
    lines = [f"  {name:{width}}  {summary(command, name)}" for name in SUBJECTS[command]]
    usage = f"usage: python -m bench {command} SUBJECT [options]"
    rest = f"python -m bench {command} SUBJECT --help describes one."
    return "\n".join([usage, "", f"{COMMANDS[command]}:", *lines, "", rest])


def parser_of(command: str, subject: str) -> argparse.ArgumentParser:
    """Import a subject and make its parser."""
    module = importlib.import_module(module_name(command, subject))
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {command} {subject}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.set_defaults(main=module.main)
    return parser


def main(words: list[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help"):
        print(commands_help())
        return
    command, *rest = words
    if command not in COMMANDS:
        sys.exit(f"{command} is no command; the commands are {', '.join(COMMANDS)}")
    if not rest or rest[0] in ("-h", "--help"):
        print(subjects_help(command))
        return
    subject, *rest = rest
    if subject not in SUBJECTS[command]:
        subjects = ", ".join(SUBJECTS[command])
        sys.exit(f"{subject} is no subject of {command}; the subjects are {subjects}")
    options = parser_of(command, subject).parse_args(rest)
    options.main(options)
