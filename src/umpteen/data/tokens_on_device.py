"""Token stores kept on a device, from which the ragged tokens of a batch are gathered there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from umpteen.data.tokens import TokenStore
from umpteen.data.transfer import to_device_together
from umpteen.types import Ragged, RowIndices

TOKENS_PER_COPY = 1 << 24


class TokensOnDevice:
    """Token ids of several stores on a device; where each text starts stays on the host.

    With ids below 65,536 a token takes 2 bytes there, else 4. Over ``max_bytes`` the ids stay on
    the host, and those of each batch are copied.
    """

    def __init__(
        self, stores: Sequence[TokenStore], device: torch.device, *, max_bytes: int
    ) -> None:
        self._stores = list(stores)
        self._device = device
        short = all(store.ids.dtype == np.uint16 for store in stores)
        n_tokens = sum(store.n_tokens for store in stores)
        self._before = np.cumsum([0, *(store.n_tokens for store in stores)])
        self._ids: torch.Tensor | None = None
        if n_tokens * (2 if short else 4) > max_bytes:
            return
        # Few operations know uint16, so its bits are kept as int16.
        self._ids = torch.empty(
            n_tokens, dtype=torch.int16 if short else torch.int32, device=device
        )
        for store, first in zip(stores, self._before, strict=False):
            for start in range(0, store.n_tokens, TOKENS_PER_COPY):
                piece = np.array(store.ids[start : start + TOKENS_PER_COPY])
                piece = piece.view(np.int16) if short else piece.astype(np.int32)
                place = int(first) + start
                self._ids[place : place + len(piece)].copy_(torch.from_numpy(piece))

    @property
    def on_device(self) -> bool:
        """Whether the ids fitted."""
        return self._ids is not None

    def take(self, chosen: Sequence[tuple[int, RowIndices]]) -> Ragged:
        """Return the tokens of some texts, one group after the other."""
        starts = np.concatenate(
            [self._stores[store].offsets[rows] + self._before[store] for store, rows in chosen]
        )
        ends = np.concatenate(
            [self._stores[store].offsets[rows + 1] + self._before[store] for store, rows in chosen]
        )
        offsets = np.concatenate([[0], np.cumsum(ends - starts)])
        if self._ids is None:
            parts = [self._stores[store].take(rows).ids for store, rows in chosen]
            return Ragged(to_device_together([np.concatenate(parts)], self._device)[0], offsets)
        total = int(offsets[-1])
        shifts, lengths = to_device_together([starts - offsets[:-1], ends - starts], self._device)
        shift = torch.repeat_interleave(shifts, lengths, output_size=total)
        found = self._ids[torch.arange(total, device=self._device) + shift].int()
        return Ragged(found & 0xFFFF if self._ids.dtype == torch.int16 else found, offsets)
