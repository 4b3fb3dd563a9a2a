"""``--to sentence-transformers``: the encoder and one head as a folder of stock modules.

Needs no code of ours to be loaded. A bag of token vectors becomes WordEmbeddings, WordWeights and
Pooling; its residual block and the head become two dense layers, as m = relu(m) - relu(-m).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from umpteen.errors import ConfigError
from umpteen.export.modules import (
    Module,
    dense,
    pooling,
    word_embeddings,
    word_weights,
    write_modules,
    write_tokenizer,
)
from umpteen.files import atomic_folder
from umpteen.head_names import HEADS
from umpteen.model.frugal.bag import BagEncoder
from umpteen.predictor import Predictor

MODES = {"mean": "mean", "first": "cls", "last": "lasttoken"}


def export(predictor: Predictor, out: str, *, head: str = "dual") -> str:
    """Write the encoder with one head as a sentence-transformers folder.

    Args:
        predictor: The model.
        out: The folder to make.
        head: ``dual`` or ``classifier``.

    Raises:
        ConfigError: If the model has no such head, or its encoder cannot be written as stock
            modules.
        UmpteenError: If the folder exists.
    """
    model = predictor.model.eval()
    if head not in HEADS or head not in model.heads:
        raise ConfigError(
            f"the head {head!r} cannot be exported; the model has {', '.join(model.heads)}"
        )
    encoder: Any = model.encoder
    max_tokens = predictor.text_config.max_tokens
    tokenizer = predictor.encoder.tokenizer
    last = _head(model, head)
    with atomic_folder(Path(out)) as folder, torch.no_grad():
        if isinstance(encoder, BagEncoder):
            first = "0_WordEmbeddings"
            modules = [*_bag(encoder, tokenizer, max_tokens), *_residual(encoder, last)]
        elif encoder.kind == "transformer":
            first = ""
            modules = [*_transformer(encoder, folder), dense(*last)]
        else:
            raise ConfigError(
                f"an encoder of the kind {encoder.kind!r} is none of sentence-transformers' "
                "modules; bags of tokens and transformers without chunks can be exported"
            )
        if head == "classifier" or model.normalize:
            modules.append(Module("Normalize"))
        write_modules(folder, modules, first=first)
        write_tokenizer(folder / first, tokenizer, max_tokens)
    return f"{' + '.join(module.kind for module in modules)}, vectors of {model.dim}"


def _head(model: nn.Module, head: str) -> tuple[Tensor, Tensor, str]:
    """Return weight, bias and activation of a head."""
    if head == "dual" or model.shares_head:
        linear: Any = model.dual_head.linear  # type: ignore[union-attr]
        return linear.weight, linear.bias, "tanh"
    linear = model.classifier_head.linear  # type: ignore[union-attr]
    return linear.weight, linear.bias, "identity"


def _bag(encoder: BagEncoder, tokenizer: Any, max_tokens: int) -> list[Module]:
    words = tokenizer.get_vocab(with_added_tokens=True)
    names = {row: word for word, row in words.items()}
    # Rows without a token of their own need a name that no token has.
    tokens = [names.get(row, f"\0{row}") for row in range(len(encoder.table))]
    return [
        word_embeddings(encoder.table, max_tokens),
        word_weights(tokens, encoder.weights.reshape(-1).exp()),
        pooling(encoder.dim, "mean"),
    ]


def _residual(encoder: BagEncoder, head: tuple[Tensor, Tensor, str]) -> Sequence[Module]:
    """Return the residual block and the head as two dense layers."""
    weight, bias, activation = head
    if not encoder.hidden:
        return [dense(weight, bias, activation)]
    same = torch.eye(encoder.dim, device=weight.device)
    inner = torch.cat([encoder.inner.weight, same, -same])  # (hidden + 2 dim, dim)
    zeros = torch.zeros(2 * encoder.dim, device=weight.device)
    inner_bias = torch.cat([encoder.inner.bias, zeros])
    outer = torch.cat([encoder.outer.weight, same, -same], dim=1)  # (dim, hidden + 2 dim)
    joined = (weight.double() @ outer.double()).float()
    joined_bias = (weight.double() @ encoder.outer.bias.double() + bias.double()).float()
    return [dense(inner, inner_bias, "relu"), dense(joined, joined_bias, activation)]


def _transformer(encoder: Any, folder: Path) -> list[Module]:
    encoder.save(folder)
    (folder / "after_pooling.safetensors").unlink(missing_ok=True)
    width = int(encoder.network.config.hidden_size)
    modules = [
        Module("Transformer", {}, config_file="sentence_bert_config.json"),
        pooling(width, MODES[encoder.pooling]),
    ]
    if encoder.after_pooling is not None:
        tensors = encoder.after_pooling.state_dict()
        for number, layer in enumerate(encoder.after_pooling.describe()):
            if layer["kind"] == "normalize":
                modules.append(Module("Normalize"))
            else:
                weight, bias = tensors[f"weight_{number}"], tensors.get(f"bias_{number}")
                modules.append(dense(weight, bias, layer["activation"]))
    return modules
