"""How long a service needs from its start to its first answer, for many labels.

    python -m bench serving start RUN PLACE [--labels 1000000] [--dim 512]

RUN lends its encoder and tokenizer. PLACE gets a run folder of so many random labels with both
heads, written once and found again. Reports wall and CPU seconds of each part, and how much memory
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


def make(given):
    """A run folder with random labels; the model's weights do not matter here."""
    import torch

    from umpteen.data.labels import LabelSet
    from umpteen.model.model import Model
    from umpteen.model.storage import TextConfig, load_model, save_model
    from umpteen.run_folder import RunFolder

    source, place = RunFolder(given.run), RunFolder(given.place)
    if (place.path / "models.json").is_file():
        return
    old, tokenizer, text_config = load_model(source.model("best"))
    n, dim = given.labels, given.dim
    place.path.mkdir(parents=True, exist_ok=True)
    labels = LabelSet(
        [f"id-{row}" for row in range(n)], [f"label {row} of many" for row in range(n)]
    )
    place.write_labels(labels, np.ones(n, np.int64))
    model = Model(old.encoder, heads=("dual", "classifier"), dim=dim, n_labels=n)
    rng = np.random.default_rng(0)
    vectors = np.empty((n, 2 * dim), np.float32)
    for start in range(0, n, 50_000):
        block = rng.standard_normal((min(50_000, n - start), 2, dim), np.float32)
        block /= np.linalg.norm(block, axis=2, keepdims=True)
        vectors[start : start + len(block)] = block.reshape(len(block), -1)
    model.label_vectors = torch.nn.Parameter(torch.from_numpy(vectors[:, dim:].copy()))
    folder = place.models / "epoch-0001"
    own = TextConfig(text_config.text, text_config.max_tokens, labels.fingerprint)
    save_model(folder, model, tokenizer, own, vectors=vectors)
    place.config.write_text(json.dumps({"config": {}}))
    (place.path / "models.json").write_text(json.dumps({"best": "models/epoch-0001"}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("place", type=Path)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=512)


def main(given: argparse.Namespace) -> None:
    with Stopwatch() as making:
        make(given)
    print(f"made in {making.wall:.0f} s")
    print(header(["part", "wall s", "CPU s"]), flush=True)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", PART, str(given.place)], check=True)
