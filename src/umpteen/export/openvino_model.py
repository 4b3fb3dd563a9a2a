"""``--to openvino``: the query side of a transformer for OpenVINO, converted from ONNX."""

from __future__ import annotations

import tempfile
from pathlib import Path

from umpteen.export.onnx_model import write_about, write_onnx
from umpteen.extras import require
from umpteen.files import atomic_folder
from umpteen.model.exported_encoder import FILES
from umpteen.predictor import Predictor


def export(predictor: Predictor, out: str) -> str:
    """Write the query side of a model for OpenVINO, in float32.

    Args:
        predictor: The model; its encoder is a transformer.
        out: The folder to make.

    Returns:
        What was written, in words.

    Raises:
        ConfigError: If the encoder cannot be exported.
        MissingExtra: If openvino, onnx or onnxscript is not installed.
    """
    openvino = require("openvino", extra="openvino")
    with atomic_folder(Path(out)) as folder, tempfile.TemporaryDirectory() as beside:
        whole = Path(beside) / FILES["onnx"]
        write_onnx(predictor, whole)
        converted = openvino.convert_model(str(whole))
        openvino.save_model(converted, str(folder / FILES["openvino"]), compress_to_fp16=False)
        write_about(predictor, folder, "fp32")
    return f"vectors of {predictor.label_vectors.width}, float32"
