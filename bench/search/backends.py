"""Time of one text on one thread, by backend: torch, ONNX Runtime, int8, OpenVINO.

    python -m bench search backends RUN TEXTS...

RUN has a transformer; each file TEXTS holds one text per line, of which 60 are used. Networks are
exported to a temporary folder. CPU time, which other processes of the machine change less than wall
time; the median text.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from bench.common import options
from bench.common.tables import Table
from bench.common.timing import each
from umpteen.data.tokens import encode
from umpteen.export import onnx_model, openvino_model
from umpteen.model.exported_encoder import ExportedEncoder
from umpteen.predictor import Predictor

ROUNDS = 3
TEXTS = 60


def measure(encoder, texts):
    encoder.vectors(texts[:1])
    one_by_one = [[text] for text in texts] * ROUNDS
    return 1000 * float(np.median(each(encoder.vectors, one_by_one, clock=time.process_time)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("texts", type=Path, nargs="+", help="files with one text per line")


def exported(predictor, folder):
    """Encoders by name; torch is the first."""
    onnx_model.export(predictor, str(folder / "onnx"))
    shutil.copytree(folder / "onnx", folder / "int8")
    onnx_model.round_file(folder / "int8" / "network.onnx")
    openvino_model.export(predictor, str(folder / "openvino"))
    encoders = {"torch": predictor.encoder}
    for name, backend in (("onnx", "onnx"), ("openvino", "openvino"), ("onnx int8", "onnx")):
        encoders[name] = ExportedEncoder(predictor.encoder, folder / name.split()[-1], backend)
    return encoders


def main(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    predictor = Predictor.load(given.run, device="cpu", with_ensemble=False)
    columns = ["texts", "tokens", "backend", "ms", "largest difference", "smallest cosine"]
    with tempfile.TemporaryDirectory() as place:
        encoders = exported(predictor, Path(place))
        table = Table(columns, 4)
        for file in given.texts:
            texts = file.read_text("utf-8").splitlines()[:TEXTS]
            max_tokens = predictor.text_config.max_tokens
            tokens = encode(texts, predictor.encoder.tokenizer, max_tokens=max_tokens)
            mean = f"{np.diff(tokens.offsets).mean():.1f}"
            wanted = predictor.vectors(texts).numpy()
            for name, encoder in encoders.items():
                found = encoder.vectors(texts).numpy()
                cosine = (found * wanted).sum(1) / np.linalg.norm(found, axis=1)
                cosine /= np.linalg.norm(wanted, axis=1)
                worst = f"{np.abs(found - wanted).max():.1e}", float(cosine.min())
                table.add(file.stem, mean, name, f"{measure(encoder, texts):.2f}", *worst)
