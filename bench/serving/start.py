"""How long a service needs from its start to its first answer, for many labels.

    python -m bench serving start RUN PLACE [--labels 1000000] [--dim 512] [--heads 1] [--index]

RUN lends its encoder and tokenizer. PLACE gets a run folder of so many random labels,
written once and found again. Reports wall and CPU seconds of each part, and how much memory
belongs to the process alone: the label vectors are mapped, and shared by all that serve them.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.common import options
from bench.common.tables import header
from bench.common.timing import Stopwatch

PART = """
import json, resource, sys, time
def clock():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime
marks = [("start", clock())]
import umpteen.predictor, umpteen.serving.app
marks.append(("imports", clock()))
predictor = umpteen.predictor.Predictor.load(sys.argv[1], device="cpu", tolerant=True)
marks.append(("load", clock()))
top = predictor.predict(["warm"], 5)
marks.append(("first answer", clock()))
top = predictor.predict(["a second"], 5)
marks.append(("second answer", clock()))
for (_, (w0, c0)), (name, (w1, c1)) in zip(marks, marks[1:]):
    print(f"| {name} | {w1 - w0:.2f} | {c1 - c0:.2f} |")
sizes = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("Rss"))
print({name: f"{int(value.split()[0]) / 2**20:.2f} GiB" for name, value in sizes.items()})
"""


def label_list(n):
    """Labels in arrays: of millions, lists of strings would not fit."""
    from umpteen.data.labels import LabelSet
    from umpteen.data.mapped_strings import MappedStrings

    ids = MappedStrings.pack(f"id-{row}" for row in range(n))
    titles = MappedStrings.pack(f"label {row} of many" for row in range(n))
    fingerprint = LabelSet.fingerprint.func(LabelSet.checked_before(ids, titles, None, ""))
    return LabelSet.checked_before(ids, titles, None, fingerprint)


def make(given):
    """A run folder with random labels; the model's weights do not matter here."""
    import torch

    from umpteen.model.model import Model
    from umpteen.model.storage import TextConfig, load_model, save_model
    from umpteen.run_folder import RunFolder

    source, place = RunFolder(given.run), RunFolder(given.place)
    if (place.path / "models.json").is_file():
        return
    old, tokenizer, text_config = load_model(source.model("best"))
    n, dim, heads = given.labels, given.dim, ("dual", "classifier")[: given.heads]
    place.path.mkdir(parents=True, exist_ok=True)
    labels = label_list(n)
    place.write_labels(labels, np.ones(n, np.int64))
    rng = np.random.default_rng(0)
    scratch = place.path / "vectors.npy"
    shape = (n, len(heads) * dim)
    vectors = np.lib.format.open_memmap(scratch, "w+", np.float32, shape)
    for start in range(0, n, 50_000):
        block = rng.standard_normal((min(50_000, n - start), len(heads), dim), np.float32)
        block /= np.linalg.norm(block, axis=2, keepdims=True)
        vectors[start : start + len(block)] = block.reshape(len(block), -1)
    model = Model(old.encoder, heads=heads, dim=dim, n_labels=n if len(heads) == 2 else 1)
    if len(heads) == 2:
        model.label_vectors = torch.nn.Parameter(torch.from_numpy(vectors[:, dim:].copy()))
    model.n_labels = n
    folder = place.models / "epoch-0001"
    own = TextConfig(text_config.text, text_config.max_tokens, labels.fingerprint)
    save_model(folder, model, tokenizer, own)
    scratch.rename(folder / "vectors.npy")
    place.config.write_text(json.dumps({"config": {}}))
    (place.path / "models.json").write_text(json.dumps({"best": "models/epoch-0001"}))
    if given.index:
        build_index(place)


def build_index(place):
    from umpteen.label_indexes import build_label_indexes
    from umpteen.predictor import Predictor

    predictor = Predictor.load(place.path, device="cpu", with_indexes=False)
    queries = predictor.vectors(["a text", "another one"])
    best = predictor.label_vectors.heads[-1]
    print(build_label_indexes(place, predictor.label_vectors, queries, kind="ivfpq", heads=(best,)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("place", type=Path)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", type=int, choices=[1, 2], default=2, help="1: dual alone")
    parser.add_argument("--index", action="store_true", help="build the index ivfpq")


def main(given: argparse.Namespace) -> None:
    with Stopwatch() as making:
        make(given)
    print(f"made in {making.wall:.0f} s")
    print(header(["part", "wall s", "CPU s"]), flush=True)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", PART, str(given.place)], check=True)
