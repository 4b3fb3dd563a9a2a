"""Train, predict and call every integration in a process that has no optional package.

    python without_extras.py PACKAGES DATA ENCODER FOLDER

PACKAGES are separated by commas. Prints JSON: the predicted label, what each integration answers.
"""

import json
import sys
from pathlib import Path

packages, data, encoder, place = sys.argv[1:]


class Installed:
    """Find modules as another finder does, but no optional package."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        absent = name.partition(".")[0] in packages.split(",")
        return None if absent else self.finder.find_spec(name, path, target)


sys.meta_path[:] = [Installed(finder) for finder in sys.meta_path]

from click.testing import CliRunner  # noqa: E402

import umpteen  # noqa: E402
from umpteen.cli import main  # noqa: E402
from umpteen.errors import MissingExtra  # noqa: E402

RUN = f"{place}/run"
SETTINGS = ["train.epochs=1", "ensemble.enabled=off", "encoder.table=random"]
model = umpteen.train(data, out=RUN, overrides=SETTINGS)
top = model.predict("red apple", k=1)
umpteen.evaluate(model, data, split="train")
vocabulary = Path(place) / "words.ttl"
vocabulary.write_text("")


def spans():
    from umpteen.serving.tracing import Tracer

    Tracer()


def skos():
    from umpteen.data.vocabulary import read_vocabulary

    read_vocabulary(vocabulary)


def ray():
    import umpteen.ray

    umpteen.ray.predict_files(RUN, data, f"{place}/parts")


def backend(name):
    from umpteen.model import exported_encoder

    exported_encoder._SESSIONS[name](Path("network"))


def export(to):
    return ["export", RUN, f"{place}/{to}", "--to", to]


def train(*words):
    return ["train", data, "--out", f"{place}/other", *words]


ACTIONS = {
    "static": [train("--set", "encoder.table=static")],
    "transformers": [train("--encoder", encoder)],
    "onnx": [export("onnx"), lambda: backend("onnx")],
    "openvino": [export("openvino"), lambda: backend("openvino")],
    "pgvector": [export("pgvector")],
    "lancedb": [export("lancedb")],
    "qdrant": [export("qdrant")],
    "parquet": [export("parquet"), ["data", "convert", data, f"{place}/p", "--to", "parquet"]],
    "hub": [
        lambda: model.push_to_hub("me/tags"),
        lambda: umpteen.Predictor.from_pretrained("me/tags"),
    ],
    "skos": [skos],
    "icd10": [["data", "build", "icd10", f"{place}/icd"]],
    "faiss": [["index", RUN, "--kind", "faiss"], ["index", RUN, "--kind", "ivfpq"]],
    "pandas": [lambda: top.to_frame()],
    "ray": [ray],
    "plot": [["data", "stats", data, "--plot", f"{place}/labels.png"]],
    "track": [train("--tensorboard")],
    "serve": [["serve", RUN, "--port", "0"]],
    "otel": [spans],
}


def answer(action):
    """The sentence of an action that fails, else what it did."""
    if isinstance(action, list):
        result = CliRunner().invoke(main, action)
        return f"exit {result.exit_code}: {result.stderr.strip().splitlines()[-1]}"
    try:
        return f"no error: {action()!r}"
    except MissingExtra as error:
        return f"exit 1: umpteen: {error}"


found = {extra: [answer(action) for action in actions] for extra, actions in ACTIONS.items()}
print(json.dumps({"label": top.ids[0][0], "answers": found}))
