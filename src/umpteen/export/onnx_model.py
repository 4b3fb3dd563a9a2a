"""``--to onnx``: the query side of a transformer as an ONNX file, and what int8 costs."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from umpteen.data.dataset import Dataset, hold_out_validation
from umpteen.errors import ConfigError
from umpteen.evaluation import evaluate
from umpteen.extras import require
from umpteen.files import atomic_folder, write_json
from umpteen.model.exported_encoder import ABOUT, FILES, ExportedEncoder, head_digest
from umpteen.model.model import Model
from umpteen.model.pooling import POOLINGS
from umpteen.predictor import Predictor
from umpteen.ranking.trained_examples import digest_texts, read_digests
from umpteen.run_folder import RunFolder

OPSET = 20
EXPORT_PRECISIONS = ("fp32", "int8")
MAX_FILE_BYTES = 1_500_000_000
"""Larger weights go into a file beside the graph, as ONNX demands."""
COMPARED_METRICS = ("P@1", "P@5")
UNSEEN_SHARE = 0.1
"""Of train, where the run held nothing out; rounding is measured as well on trained texts."""
MAX_LOSS = 0.2
"""Points of a metric on validation that int8 may lose."""


class QueryNetwork(nn.Module):
    """A transformer, its pooling and the heads; equals ``Model.query_vectors`` on padded tokens."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        encoder: Any = model.encoder
        self.network, self.pooling, self.after_pooling = (
            encoder.network,
            encoder.pooling,
            encoder.after_pooling,
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Map ids and mask (B, T) int64 to (B, heads * dim)."""
        hidden = self.network(input_ids=ids, attention_mask=mask)[0]
        vectors = POOLINGS[self.pooling](hidden, mask.bool())
        if self.after_pooling is not None:
            vectors = self.after_pooling(vectors)
        return self.model.search_vectors(vectors)


def query_network(predictor: Predictor) -> QueryNetwork:
    """Return the query side of a predictor, on the CPU.

    Raises:
        ConfigError: If the encoder is no transformer, or reads texts in chunks.
    """
    model = predictor.model
    if model.encoder.kind != "transformer":
        raise ConfigError(
            f"the encoder is of the kind {model.encoder.kind!r}; transformers without chunks can "
            "be exported as a network"
        )
    return QueryNetwork(model.to(torch.device("cpu")).eval()).eval()


def export(
    predictor: Predictor, out: str, *, precision: str = "fp32", data: Dataset | None = None
) -> str:
    """Write the query side of a model for ONNX Runtime.

    Args:
        predictor: The model; its encoder is a transformer.
        out: The folder to make.
        precision: ``fp32``, or ``int8``: weights and products of linear layers are rounded.
        data: With a validation split, or a train split that one is held out of; needed for int8.

    Raises:
        ConfigError: If the encoder cannot be exported, or int8 loses more than 0.2 points on
            validation.
        MissingExtra: If onnx or onnxscript is not installed.
    """
    if precision not in EXPORT_PRECISIONS:
        raise ConfigError(
            f"precision {precision!r} is not known. Known: {', '.join(EXPORT_PRECISIONS)}."
        )
    if precision == "int8" and data is None:
        raise ConfigError("int8 is measured before it is written: name the data with --data")
    with atomic_folder(Path(out)) as folder:
        file = folder / FILES["onnx"]
        write_onnx(predictor, file)
        write_about(predictor, folder, precision)
        if precision == "fp32":
            return f"vectors of {predictor.label_vectors.width}, float32"
        round_file(file)
        assert data is not None
        loss = rounding_loss(predictor, folder, "onnx", data)
        if loss > MAX_LOSS:
            raise ConfigError(
                f"int8 loses {loss:.2f} points of P@1 or P@5 on validation, more than the "
                f"{MAX_LOSS} that are accepted; export fp32"
            )
        return f"vectors of {predictor.label_vectors.width}, int8, {loss:.2f} points lost"


def write_onnx(predictor: Predictor, file: Path) -> None:
    """Write the float32 network of a predictor."""
    require("onnx", extra="onnx")
    require("onnxscript", extra="onnx")
    network = query_network(predictor)
    ids = torch.ones(3, 7, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            network,
            (ids, mask),
            dynamo=True,
            input_names=["ids", "mask"],
            output_names=["vectors"],
            dynamic_shapes={"ids": free, "mask": free},
            opset_version=OPSET,
            verbose=False,
        )
        size = sum(p.numel() * p.element_size() for p in network.parameters())
        program.save(str(file), external_data=size > MAX_FILE_BYTES)


def write_about(predictor: Predictor, folder: Path, precision: str) -> None:
    """Write the tokenizer and what the encoder needs beside the network."""
    predictor.encoder.tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "model": head_digest(predictor.model),
        "pad_id": predictor.model.encoder.pad_id,
        "max_tokens": predictor.text_config.max_tokens,
        "precision": precision,
        "columns": {
            head: [columns.start, columns.stop]
            for head, columns in predictor.label_vectors.columns.items()
        },
    }
    write_json(folder / ABOUT, about)


def round_file(file: Path) -> None:
    """Replace a float32 network by one whose linear layers compute in int8."""
    quantization = require("onnxruntime.quantization", extra="onnx")
    network = require("onnx", extra="onnx").load(str(file))
    # Shapes that the exporter wrote down contradict those of the rounded layers.
    del network.graph.value_info[:]
    with _quiet():
        quantization.quantize_dynamic(
            network, str(file), op_types_to_quantize=["MatMul", "Gemm"], per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            extra_options={"DefaultTensorType": 1},
        )  # fmt: skip


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's own reports from the terminal."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "root")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def rounding_loss(predictor: Predictor, folder: Path, backend: str, data: Dataset) -> float:
    """Return the points that the exported network loses at most, over heads and metrics.

    Returns:
        Points (0 to 100); below 0 where it gains.

    Raises:
        DataError: If the data has neither split.
    """
    data = _with_validation(predictor, data)
    whole = predictor.encoder
    found = []
    for encoder in (whole, ExportedEncoder(whole, folder, backend)):
        predictor.encoder = encoder
        try:
            report = evaluate(predictor, data, split="validation", metrics=COMPARED_METRICS)
        finally:
            predictor.encoder = whole
        found.append(
            np.array([[h.values[m] for m in COMPARED_METRICS] for h in report.heads.values()])
        )
    return float((found[0] - found[1]).max())


def _with_validation(predictor: Predictor, data: Dataset) -> Dataset:
    """Return data with a validation split: its own, or the training texts that the run held out."""
    if "validation" in data or "train" not in data or predictor.folder is None:
        return data
    run, train = RunFolder(predictor.folder), data["train"]
    digests = digest_texts(train.texts(predictor.text_config.text))
    held = np.flatnonzero(np.isin(digests, read_digests(run.held_out)))
    if len(held):
        return replace(data, splits={**data.splits, "validation": train.select(held)})
    seed = run.read_settings().get("seed", 0)
    return hold_out_validation(data, share=UNSEEN_SHARE, max_queries=len(train), seed=seed)
