"""umpteen beside Annif's own backends on one corpus, measured by Annif.

    python -m bench peers annif ANNIF CORPUS VOCABULARY LANGUAGE OUT [--seeds 17 18 19]

ANNIF is the program in its own environment (annif[omikuji] 1.4, NLTK data in NLTK_DATA), CORPUS a
TSV file of Annif. A fifth of the corpus is the test split; texts are in one split only.
"""

import argparse
import contextlib
import random
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from bench.common.tables import Table

PORT = 8123
OWN = """[{name}]
name={name}
language={language}
backend={backend}
vocab=words
limit=100
{options}
"""
WORDS = "analyzer=simplemma({language})"
BACKENDS = {
    "tfidf": ("tfidf", WORDS),
    "omikuji": ("omikuji", f"{WORDS}\ncluster_balanced=False\ncluster_k=100\nmax_depth=3\nngram=2"),
    "mllm": ("mllm", WORDS),
    "ensemble": ("ensemble", "sources=tfidf:1,omikuji:3,mllm:1"),
    "umpteen": ("http", f"endpoint=http://127.0.0.1:{PORT}/v1/projects/words/suggest"),
    "umpteen-omikuji": ("ensemble", "sources=omikuji:1,umpteen:2"),
}
METRICS = ("F1@5", "NDCG@5", "Precision@1")


def split(corpus, vocabulary, folder):
    folder.mkdir()
    lines = [line for line in Path(corpus).read_text("utf-8").split("\n") if line.count("<")]
    random.Random(0).shuffle(lines)
    test, train = lines[: len(lines) // 5], lines[len(lines) // 5 :]
    seen = {line.split("\t")[0] for line in train}
    test = [line for line in test if line.split("\t")[0] not in seen]
    for name, part in (("train", train), ("test", test)):
        (folder / f"{name}.tsv").write_text("\n".join(part) + "\n", "utf-8")
    (folder / f"vocabulary{Path(vocabulary).suffix}").write_bytes(Path(vocabulary).read_bytes())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("annif", help="the program")
    parser.add_argument("corpus", type=Path, help="a TSV file of Annif")
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("language")
    parser.add_argument("out", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19], help="of umpteen")


def main(given: argparse.Namespace) -> None:
    annif, language, vocabulary = given.annif, given.language, given.vocabulary
    out = given.out.resolve()
    out.mkdir()
    split(given.corpus, vocabulary, out / "data")
    projects = [
        OWN.format(name=name, backend=backend, language=language,
                   options=options.format(language=language))
        for name, (backend, options) in BACKENDS.items()
    ]  # fmt: skip
    (out / "projects.cfg").write_text("\n".join(projects))

    def call(*words):
        done = subprocess.run(
            [annif, *words], cwd=out, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    call("load-vocab", "words", str(Path(vocabulary).resolve()))
    for name in ("tfidf", "omikuji", "mllm"):
        call("train", name, "data/train.tsv")
    rows = Table(["backend", "seed", *METRICS])

    def measure(name, seed):
        wanted = [word for metric in METRICS for word in ("-m", metric)]
        table = call("eval", "--limit", "5", "--threshold", "0", *wanted, name, "data/test.tsv")
        values = [re.search(rf"{metric}:\s+([\d.]+)", table)[1] for metric in METRICS]
        rows.add(name, seed, *(100 * float(value) for value in values))

    for name in ("tfidf", "omikuji", "mllm", "ensemble"):
        measure(name, "")
    for seed in given.seeds:
        with served(out, language, seed):
            measure("umpteen", seed)
            measure("umpteen-omikuji", seed)


@contextlib.contextmanager
def served(out, language, seed):
    """Train with a seed, and serve the run for the block."""
    umpteen = [sys.executable, "-m", "umpteen"]
    data, run = str(out / "data"), str(out / f"run-{seed}")
    train = [*umpteen, "train", data, "--language", language, "--out", run]
    subprocess.run([*train, "--set", f"seed={seed}"], check=True)
    service = subprocess.Popen([*umpteen, "serve", run, "--annif", "words", "--port", str(PORT)])
    try:
        wait()
        yield
    finally:
        service.terminate()
        service.wait()


def wait():
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz")
            return
        except OSError:
            time.sleep(0.2)
    sys.exit("the service did not start")
