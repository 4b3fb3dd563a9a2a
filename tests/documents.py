"""Run the blocks of a Markdown page in one folder, with ``umpteen`` in this process.

A comment before a block says what happens to it: ``<!-- run -->`` runs it (sh or python),
``<!-- file: NAME -->`` writes it to NAME, ``<!-- skip: REASON -->`` does neither.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

from click.testing import CliRunner

BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)^```", re.M | re.S
)
MARKS = re.compile(r"run|file: \S+|skip: .+")
COMMAND = ("umpteen", "python -m umpteen")


@dataclass(frozen=True)
class Block:
    mark: str
    language: str
    body: str


def blocks_of(page):
    text = page.read_text("utf-8")
    return [Block(m["mark"] or "", m["language"], m["body"]) for m in BLOCK.finditer(text)]


def run_page(page, folder, names=None):
    """Run all blocks of a page in order; return the Python names and what sh blocks printed."""
    names, printed = {} if names is None else names, []
    for block in blocks_of(page):
        if block.mark.startswith("file: "):
            place = folder / block.mark.removeprefix("file: ")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.body, "utf-8")
        elif block.mark == "run" and block.language == "sh":
            printed += [run_line(line, folder) for line in logical_lines(block.body)]
        elif block.mark == "run":
            exec(compile(block.body, str(page), "exec"), names)
    return names, "".join(printed)


def logical_lines(body):
    """Commands of a block: continued lines and here-documents belong to their first line."""
    lines, waiting, until = [], "", None
    for line in body.splitlines():
        waiting += line + "\n"
        found = re.search(r"<<'?(\w+)'?", line)
        if until is None and found:
            until = found[1]
        elif until is not None and line == until:
            until = None
        if until is None and not line.endswith("\\"):
            if waiting.strip() and not waiting.lstrip().startswith("#"):
                lines.append(waiting)
            waiting = ""
    return lines


def run_line(line, folder):
    """Run one command: ``umpteen`` and what is piped into it here, everything else in bash."""
    *before, last = re.split(
        r"\s\|\s(?=(?:umpteen|python -m umpteen)\s)", line.replace("\\\n", " ")
    )
    if not last.strip().startswith(COMMAND):
        return in_bash(line, folder)
    given = in_bash(before[0], folder) if before else None
    words = shlex.split(last, comments=True)
    words = words[1:] if words[0] == "umpteen" else words[3:]
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], words[words.index(">") + 1]
    from umpteen.cli import main

    sys.path.insert(0, str(folder))  # as python -m does
    try:
        done = CliRunner().invoke(main, words, input=given, prog_name="umpteen")
    finally:
        sys.path.remove(str(folder))
    assert done.exit_code == 0, f"umpteen {shlex.join(words)}: {done.stderr}{done.exception!r}"
    if target is not None:
        (folder / target).write_text(done.stdout, "utf-8")
        return ""
    return done.stdout


def in_bash(line, folder):
    done = subprocess.run(
        ["bash", "-ec", line], cwd=folder, env=dict(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout
