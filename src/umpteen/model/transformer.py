"""Any Hugging Face encoder, by folder or hub name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel

from umpteen.compute.group_attention import ATTENTION_BACKENDS
from umpteen.compute.packing import different
from umpteen.compute.precision import at_least_float32
from umpteen.errors import ConfigError
from umpteen.model.encoder import length_groups, pad, to_device
from umpteen.model.packed import Form, packed_form
from umpteen.model.packed_forward import encode_packed, encode_tokens, lay_out_packed, too_long
from umpteen.model.packed_layout import PackedLayout
from umpteen.model.packed_modern import ModernForm, modern_form
from umpteen.model.pooling import POOLINGS, PoolingLayers
from umpteen.model.pretrained import load_network, quiet, width_of
from umpteen.types import Ragged

AFTER_POOLING = "after_pooling.safetensors"
MASK_GIVEN = "umpteen_sdpa"
"""The library's attention of the same kernels, with masks decided here."""


class TransformerEncoder(nn.Module):
    """A pretrained transformer with mean, first-token or last-token pooling.

    What it is for: the best accuracy, on a GPU; small ones (MiniLM) also predict well on a CPU.
    When to take its neighbour: without a GPU or a download, ``bag`` or ``convolution``.
    Cost: time follows real tokens. BERT, MiniLM, DistilBERT, RoBERTa, XLM-R, CamemBERT, ELECTRA and
    MPNet run on packed tokens, without padding (all in ``model/packed.py``), as ModernBERT does
    (``model/packed_modern.py``); others (DeBERTa, the encoder of a T5) are sorted by length and
    padded in a few groups. Equal texts of a call are encoded once: while training they share one
    dropout.

    Args:
        network: A Hugging Face model whose first output is (B, T, dim).
        pooling: ``"mean"``, ``"first"`` or ``"last"``.
        pad_id: The tokenizer's padding id.
        after_pooling: Layers after pooling, of an encoder that has any.
    """

    kind = "transformer"

    def __init__(
        self,
        network: nn.Module,
        *,
        pooling: str = "mean",
        pad_id: int = 0,
        after_pooling: PoolingLayers | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ConfigError(f"pooling {pooling!r} is not known. Known: {', '.join(POOLINGS)}.")
        self.network = network
        self.pooling = pooling
        self.pad_id = pad_id
        self.after_pooling = after_pooling
        self.dim = width_of(network) if after_pooling is None else after_pooling.dim
        _decide_masks_on_the_host_(network)
        self._taken_apart: tuple[Form | ModernForm | None] | None = None

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; whether the network can run packed is checked again."""
        self._taken_apart = None
        return super().train(mode)

    def _apply(self, *args: Any, **options: Any) -> Self:
        self._taken_apart = None  # parameters may be of another type or elsewhere
        return super()._apply(*args, **options)

    def _form(self) -> Form | ModernForm | None:
        """Return the network taken apart; kept, since that takes longer than a layer's launches."""
        if self._taken_apart is None:
            self._taken_apart = (packed_form(self.network) or modern_form(self.network),)
        return self._taken_apart[0]

    @property
    def max_positions(self) -> int | None:
        """The longest text the network's table of positions allows; None if it has no such table.

        A longer one is an error on a CPU, and on a GPU the end of the process.
        """
        for name, module in self.network.named_modules():
            if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                first = 0 if module.padding_idx is None else module.padding_idx + 1
                return module.num_embeddings - first
        return None

    def forward(self, tokens: Ragged) -> Tensor:
        """Encode ragged tokens of B texts, (B, dim).

        Raises:
            UmpteenError: If a text is longer than the network's table of positions.
        """
        form = self._form()
        layout = tokens.layout or _laid_out(form, tokens)
        if form is None or layout is None:
            vectors = self._padded(tokens)
        else:
            training = self.network.training
            vectors = encode_packed(form, layout, pooling=self.pooling, training=training)
        return vectors if self.after_pooling is None else self.after_pooling(vectors)

    def layout(self, tokens: Ragged) -> PackedLayout | None:
        """Return what a packed forward pass needs of the tokens; None where it would be padded."""
        return _laid_out(self._form(), tokens)

    def token_vectors(self, tokens: Ragged) -> tuple[Tensor, Tensor]:
        """Encode ragged tokens of B texts without pooling.

        Returns:
            (N, width) vectors of the tokens of the different texts, float32 at least, and (B,)
            the place of each text's first token.

        Raises:
            UmpteenError: If a text is longer than the network's table of positions.
        """
        form = self._form()
        layout = tokens.layout or _laid_out(form, tokens)
        if isinstance(form, Form) and layout is not None:
            vectors = encode_tokens(form, layout, training=self.network.training)
            starts = layout.offsets[:-1].long()
            return vectors, starts if layout.back is None else starts[layout.back]
        order, back = self._by_length(tokens)
        vectors = torch.cat([hidden[mask] for hidden, mask in self._hidden(tokens, order)])
        ends = np.cumsum(np.diff(tokens.offsets)[order])
        firsts = np.concatenate([[0], ends[:-1]])
        return vectors, to_device(firsts[back], vectors.device)

    def _padded(self, tokens: Ragged) -> Tensor:
        """Return the same as ``forward`` by the network's own code."""
        order, back = self._by_length(tokens)
        pool = POOLINGS[self.pooling]
        vectors = torch.cat([pool(hidden, mask) for hidden, mask in self._hidden(tokens, order)])
        return vectors[to_device(back, vectors.device)]  # (B, dim)

    def _by_length(self, tokens: Ragged) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the different texts by length, and each text's place among these."""
        rows, back = different(tokens)
        lengths = np.diff(tokens.offsets)[rows]
        most = self.max_positions
        if most is not None and lengths.max(initial=0) > most:
            raise too_long(int(lengths.max()), most)
        order = np.argsort(lengths, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return rows[order], places[back]

    def _hidden(self, tokens: Ragged, rows: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (b, T, width) vectors and (b, T) masks of groups of texts, sorted by length."""
        device = next(self.network.parameters()).device
        for group in length_groups(np.diff(tokens.offsets)[rows]):
            ids, mask = pad(tokens, rows[group], pad_id=self.pad_id)
            token_mask = to_device(mask, device)
            attended = None if mask.all() else token_mask.long()
            with sdpa_kernel(ATTENTION_BACKENDS):
                hidden = self.network(input_ids=to_device(ids, device), attention_mask=attended)[0]
            yield at_least_float32(hidden), token_mask

    def row_parameters(self) -> list[nn.Parameter]:
        """Return an empty list: a transformer's token table is trained as a whole."""
        return []

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the network in the Hugging Face layout."""
        with quiet():
            self.network.save_pretrained(folder)  # type: ignore[operator]
        options: dict[str, Any] = {"pooling": self.pooling, "pad_id": self.pad_id}
        if self.after_pooling is not None:
            tensors = {
                name: value.contiguous() for name, value in self.after_pooling.state_dict().items()
            }
            save_file(tensors, folder / AFTER_POOLING)
            options["after_pooling"] = self.after_pooling.describe()
        return options

    @classmethod
    def load(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Read what ``save`` wrote, or any local Hugging Face folder."""
        network = load_network(str(folder), saved=True)
        options = dict(options)
        if "after_pooling" in options:
            tensors = load_file(folder / AFTER_POOLING)
            options["after_pooling"] = PoolingLayers.of(
                options["after_pooling"], tensors, width_of(network)
            )
        return cls(network, **options)


def _laid_out(form: Form | ModernForm | None, tokens: Ragged) -> PackedLayout | None:
    """Return the layout of texts with at least one token and no padding token."""
    lengths = np.diff(tokens.offsets)
    if form is None or not len(lengths) or lengths.min() == 0:
        return None
    away = isinstance(tokens.ids, Tensor)  # not to be looked at
    if form.padding is not None and (away or (tokens.ids == form.padding).any()):
        return None
    return lay_out_packed(form, tokens)


def _decide_masks_on_the_host_(network: nn.Module) -> None:
    """Keep the library from asking the device whether a mask is needed.

    Its own rule for this attention looks whether all of the mask is True, so the host waits for the
    device once in every forward pass. Here it is known beforehand: no mask is passed if not.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    config = network.config
    own = getattr(network, "_supports_attention_backend", False)
    if not own or getattr(config, "_attn_implementation", None) != "sdpa":
        return

    def mask(*args: Any, **options: Any) -> Tensor | None:
        if options.get("attention_mask") is not None:
            options["allow_is_bidirectional_skip"] = False
        found: Tensor | None = sdpa_mask(*args, **options)
        return found

    AttentionInterface.register(MASK_GIVEN, sdpa_attention_forward)
    AttentionMaskInterface.register(MASK_GIVEN, mask)
    network.set_attn_implementation(MASK_GIVEN)  # type: ignore[operator]
