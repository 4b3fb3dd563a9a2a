"""Time of one text on one thread, by backend: torch, ONNX Runtime, int8, OpenVINO.

    python -m bench search backends RUN TEXTS

RUN has a transformer; TEXTS holds one text per line. Networks are exported to a temporary folder.
CPU time, which other processes of the machine change less than wall time; the median text.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from bench.common import options
from bench.common.tables import Table
from bench.common.timing import each
from umpteen.export import onnx_model, openvino_model
from umpteen.model.exported_encoder import ExportedEncoder
from umpteen.predictor import Predictor

ROUNDS = 3


def measure(encoder, texts):
    encoder.vectors(texts[:1])
    one_by_one = [[text] for text in texts] * ROUNDS
    return 1000 * float(np.median(each(encoder.vectors, one_by_one, clock=time.process_time)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("texts", type=Path, help="one text per line")


def main(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    predictor = Predictor.load(given.run, device="cpu", with_ensemble=False)
    texts = given.texts.read_text("utf-8").splitlines()[:100]
    wanted = predictor.vectors(texts).numpy()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx_model.export(predictor, str(folder / "onnx"))
        onnx_model.export(predictor, str(folder / "int8"))
        onnx_model.round_file(folder / "int8" / "network.onnx")
        openvino_model.export(predictor, str(folder / "openvino"))
        encoders = {"torch": predictor.encoder}
        for name, backend in (("onnx", "onnx"), ("onnx int8", "onnx"), ("openvino", "openvino")):
            encoders[name] = ExportedEncoder(predictor.encoder, folder / name.split()[-1], backend)
        table = Table(["backend", "ms per text", "largest difference", "smallest cosine"], 4)
        for name, encoder in encoders.items():
            found = encoder.vectors(texts).numpy()
            cosine = (found * wanted).sum(1) / np.linalg.norm(found, axis=1)
            cosine /= np.linalg.norm(wanted, axis=1)
            difference = np.abs(found - wanted).max()
            worst = f"{difference:.1e}", float(cosine.min())
            table.add(name, measure(encoder, texts), *worst)
