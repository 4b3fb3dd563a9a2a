"""Reading, checking and tokenizing of many short rows: rows per second, and memory that is flat.

    python -m bench training large-data PLACE [--rows 1000000 10000000] [--labels 1000000]
        [--out rows.json]

PLACE gets synthetic data of each size (jsonl, 2.3 labels and 5 words a text, about 100 bytes a
row), which is removed in the end. `umpteen data check`, and a process that reads the data and
tokenizes it with a small WordPiece tokenizer, are measured as children: CPU seconds, and the
highest resident memory, pages of mapped files included. Temporary files go where TMPDIR says.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows

TOKENIZE = """
import sys
from itertools import islice
from umpteen.data.formats import load_dataset
from umpteen.data.tokens import tokenize
from umpteen.model.frugal.tables import train_tokenizer
texts = load_dataset(sys.argv[1])["train"].texts()
tokenizer = train_tokenizer(islice(texts, 50_000), vocabulary=8_000)
store = tokenize(texts, tokenizer, max_tokens=32, folder=sys.argv[1] + "/tokens")
print(f"{store.n_tokens:,} tokens", file=sys.stderr)
"""


WRITE = """
import sys
from pathlib import Path
from umpteen.data.sources.synthetic import SyntheticData
rows, labels = map(int, sys.argv[2:])
SyntheticData(rows, 10_000, labels, 2.0, 5.0).write(Path(sys.argv[1]))
"""


def measure(rows: int, what: str, command: list[str]) -> dict[str, float | str]:
    """Run a command and return its CPU time and its highest resident memory."""
    child = subprocess.Popen([sys.executable, *command])
    _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{what} failed")
    seconds = used.ru_utime + used.ru_stime
    return {"rows": f"{rows:,}", "what": what, "CPU s": seconds, "rows/s": rows / seconds,
            "peak MiB": used.ru_maxrss / 1024}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["check", "tokenize"], help="measure one of them")
    parser.add_argument("--keep", action="store_true", help="leave the data, and use what is there")
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    about = {"labels": given.labels, **facts("cpu")}
    print_facts(about)
    found = []
    for rows in given.rows:
        place = given.place / f"{rows}"
        place.mkdir(parents=True, exist_ok=given.keep)
        try:
            if not (place / "test.jsonl").exists():
                # In a process of its own: ru_maxrss of a child begins at the peak of its parent.
                sizes = [str(rows), str(given.labels)]
                subprocess.run([sys.executable, "-c", WRITE, str(place), *sizes], check=True)
            if given.only != "tokenize":
                command = ["-m", "umpteen", "data", "check", str(place)]
                found.append(measure(rows, "data check", command))
            if given.only != "check":
                found.append(measure(rows, "read and tokenize", ["-c", TOKENIZE, str(place)]))
        finally:
            if not given.keep:
                shutil.rmtree(place)
        save(given.out, found, **about)
    print_rows(found, digits=0)
