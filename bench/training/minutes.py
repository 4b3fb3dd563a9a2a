"""Whether `umpteen train --minutes` takes the minutes: long documents and many short texts.

    python -m bench training minutes [--kind documents texts] [--minutes 1 2] [--keep FOLDER]
        [--set key=value ...] [--out rows.json]

``documents`` are 560 texts of 50 KB, ``texts`` 500,000 texts of about 40 characters, both as JSONL
with a ``text`` and ``labels``. Words are drawn from a vocabulary of 30,000 and from words of each
label. The command runs as a process of its own, without a token cache. Wall time is that of the
process, from its start to its end; the last column says why it took no longer.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows

KINDS = {"documents": (560, 8000, 40), "texts": (500_000, 6, 1000)}
"""Texts, words of each, labels."""
VOCABULARY = 30_000
LABEL_WORDS = 12


def write_texts(path: Path, n: int, words: int, labels: int, *, seed: int = 0) -> None:
    """Write texts with one to three labels each; a fifth of the words belong to the labels."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as out:
        for start in range(0, n, 10_000):
            rows = min(10_000, n - start) if words < 1000 else n
            counts = rng.integers(1, 4, rows)
            own = np.minimum(rng.geometric(6 / labels, (rows, 3)) - 1, labels - 1)
            ids = (VOCABULARY * rng.random((rows, words)) ** 3).astype(np.int64)
            drawn = own[
                np.arange(rows)[:, None], rng.integers(0, 3, (rows, words)) % counts[:, None]
            ]
            of_label = rng.random((rows, words)) < (0.2 if words > 1000 else 0.6)
            place = rng.integers(0, LABEL_WORDS, (rows, words))
            ids = np.where(of_label, VOCABULARY + drawn * LABEL_WORDS + place, ids)
            for line, mine, count in zip(ids.tolist(), own.tolist(), counts.tolist(), strict=True):
                text = " ".join(map(spelled, line))
                names = sorted({f"label {spelled(VOCABULARY + 7 * x)}" for x in mine[:count]})
                out.write(json.dumps({"text": text, "labels": names}) + "\n")
            if words >= 1000:
                return


def spelled(number: int) -> str:
    """Return a pronounceable word of a number."""
    word = ""
    while True:
        number, syllable = divmod(number, 90)
        word += "bdfgklmnprstvzchjw"[syllable // 5] + "aeiou"[syllable % 5]
        if not number:
            return word


def measured(data: Path, minutes: float, settings: list[str], folder: Path) -> dict:
    """Train in a process of its own; return its time and the lines it printed."""
    run = folder / f"run-{data.stem}-{minutes:g}"
    command = [sys.executable, "-m", "umpteen", "train", str(data), "--out", str(run)]
    command += ["--minutes", f"{minutes:g}", "--cache", str(folder / f"cache-{run.name}")]
    command += [word for setting in settings for word in ("--set", setting)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(done.stderr, file=sys.stderr)
    done.check_returncode()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ends = re.findall(r"Ended early: (.*)", done.stderr)
    return {
        "data": data.stem,
        "minutes": minutes,
        "wall, s": round(wall, 1),
        "of the budget, %": round(100 * wall / (60 * minutes), 1),
        "CPU, s": round(cpu, 1),
        "ended early": "; ".join(ends) or "no",
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--minutes", nargs="*", type=float, default=[1.0, 2.0])
    parser.add_argument(
        "--keep", type=Path, help="keep data and runs here; data there is read again"
    )
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    rows, about = [], facts("cpu")
    with TemporaryDirectory(prefix="umpteen-minutes-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in args.kind:
            data = folder / f"{kind}.jsonl"
            if not data.exists():
                write_texts(data, *KINDS[kind])
            for minutes in args.minutes:
                rows.append(measured(data, minutes, args.settings, folder))
                save(args.out, rows, **about)
    print_rows(rows)
    print_facts(about)
