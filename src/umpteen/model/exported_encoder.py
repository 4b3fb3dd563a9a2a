"""Texts to search vectors with an exported network: ONNX Runtime or OpenVINO, on the CPU."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.compute.packing import different
from umpteen.data.tokens import TokenStore, encode
from umpteen.errors import ConfigError, RunError
from umpteen.extras import require
from umpteen.files import read_json
from umpteen.model.encoder import length_groups, pad
from umpteen.model.model import Model
from umpteen.model.text_encoder import TextEncoder
from umpteen.types import Ragged

ABOUT = "umpteen.json"
FILES = {"onnx": "network.onnx", "openvino": "network.xml"}
BACKENDS = ("torch", *FILES)
TOKENS_AT_ONCE = 1 << 14
Run = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]


class ExportedEncoder(TextEncoder):
    """A model with its tokenizer, run by an exported network.

    Args:
        torch_encoder: The same model in torch; gives tokenizer and length.
        folder: What ``umpteen export --to onnx`` or ``openvino`` wrote.
        backend: ``onnx`` or ``openvino``.

    Raises:
        RunError: If the folder was exported from another model.
        MissingExtra: If the runtime is not installed.
    """

    def __init__(self, torch_encoder: TextEncoder, folder: Path, backend: str) -> None:
        super().__init__(
            torch_encoder.model, torch_encoder.tokenizer, torch_encoder.text_config, owned=True
        )
        about = read_json(folder / ABOUT, error=RunError)
        if not isinstance(about, dict) or about.get("model") != head_digest(self.model):
            raise RunError(
                f"{folder} was exported from another model; remove it and run umpteen export again"
            )
        self._pad_id = int(about["pad_id"])
        self._run = _SESSIONS[backend](folder / FILES[backend])

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode texts: (N, heads * dim) float32."""
        ragged = encode(texts, self.tokenizer, max_tokens=self.text_config.max_tokens)
        return self._encode(ragged)

    def token_vectors(self, tokens: TokenStore, *, precision: str = "fp32") -> torch.Tensor:
        """Encode tokenized texts: (N, heads * dim) float32, in the exported precision."""
        return self._encode(tokens.take(np.arange(len(tokens))))

    def _encode(self, tokens: Ragged) -> torch.Tensor:
        rows, back = different(tokens)
        lengths = np.diff(tokens.offsets)[rows]
        order = np.argsort(lengths, kind="stable")
        parts = []
        for group in length_groups(lengths[order]):
            chosen = rows[order[group]]
            longest = int(lengths[order[group]].max(initial=1))
            size = max(1, TOKENS_AT_ONCE // longest)
            for start in range(0, len(chosen), size):
                ids, mask = pad(tokens, chosen[start : start + size], pad_id=self._pad_id)
                parts.append(self._run(ids, mask.astype(np.int64)))
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return torch.from_numpy(np.concatenate(parts)[places[back]])


def head_digest(model: Model) -> str:
    """Return a digest of the heads' weights, which no other training has."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(("dual_head.", "classifier_head.", "log_scales")):
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:32]


def load_exported(torch_encoder: TextEncoder, run: Path, backend: str) -> ExportedEncoder:
    """Return the encoder of a run, run by the network exported to ``RUN/backends``.

    Raises:
        RunError: If it was not exported, or from another model.
        ConfigError: If the backend is unknown, or the encoder is no transformer.
        MissingExtra: If the runtime is not installed.
    """
    if backend not in FILES:
        raise ConfigError(f"backend {backend!r} is not known. Known: {', '.join(BACKENDS)}.")
    kind = torch_encoder.model.encoder.kind
    if kind != "transformer":
        raise ConfigError(
            f"{run} has an encoder of the kind {kind!r}, which runs in torch alone; leave the "
            "backend out"
        )
    folder = run / "backends" / backend
    if not (folder / FILES[backend]).is_file():
        raise RunError(
            f"{folder} has no exported network; make it with: umpteen export {run} {folder} "
            f"--to {backend}"
        )
    return ExportedEncoder(torch_encoder, folder, backend)


def _onnx(file: Path) -> Run:
    runtime = require("onnxruntime", extra="onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run(["vectors"], {"ids": ids, "mask": mask})[0]
        return found

    return run


def _openvino(file: Path) -> Run:
    openvino: Any = require("openvino", extra="openvino")
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    compiled = openvino.Core().compile_model(str(file), "CPU", settings)
    own = threading.local()

    def run(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        # A request for each thread: threads may share the encoder, and making one takes long.
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        found = own.request.infer({"ids": ids, "mask": mask}, share_inputs=True)
        vectors: NDArray[np.float32] = next(iter(found.values()))
        return vectors.copy()

    return run


_SESSIONS: dict[str, Callable[[Path], Run]] = {"onnx": _onnx, "openvino": _openvino}
