"""Top-k of score blocks under one tie rule: the smaller row first. No vectors and no files here.

``torch.topk`` promises nothing about equal scores, neither which of them it keeps at the k-th place
nor their order. Two ways around it live here: ``RunningTop`` keeps plain float scores, puts ties in
order and *notices* the rare query where a tie at the k-th place was cut blindly; ``KeyedTop`` packs
score and row into one integer, so that no two are equal, at two to three times the cost. Neither
waits for the device.
"""

from __future__ import annotations

import torch

NOTHING = -torch.inf
_LOW = 0xFFFFFFFF


class RunningTop:
    """The best k of all blocks seen so far; blocks come in rising row order.

    Args:
        n_queries: B.
        k: How many to keep.
        device: Where the blocks are.
    """

    def __init__(self, n_queries: int, k: int, device: torch.device) -> None:
        self.k = k
        self.scores = torch.full((n_queries, k), NOTHING, device=device)
        self.rows = torch.full((n_queries, k), -1, dtype=torch.int64, device=device)
        self._tied = torch.full((n_queries,), NOTHING, device=device)

    def add(self, scores: torch.Tensor, start: int) -> None:
        """Take in a block.

        Args:
            scores: (B, C) of the labels ``start`` to ``start + C``.
            start: The first label's row.
        """
        group = group_size(scores.shape[1], self.k)
        if group > 1:
            scores, rows = self._best_groups(scores, group)
        else:
            rows = None
        count = min(self.k + 1, scores.shape[1])
        best, places = scores.topk(count, dim=1)
        self._note(best)
        places = places[:, : self.k].sort(dim=1).values  # columns rise with rows
        best = scores.gather(1, places)
        rows = places if rows is None else rows.gather(1, places)
        # Stable, and earlier blocks first: equal scores stay in row order.
        merged = torch.cat([self.scores, best], dim=1)
        order = merged.sort(dim=1, descending=True, stable=True).indices[:, : self.k]
        self.scores = merged.gather(1, order)
        self.rows = torch.cat([self.rows, rows + start], dim=1).gather(1, order)

    def unsure(self) -> torch.Tensor:
        """(B,) whether a tie was cut blindly that may have touched the result."""
        return (self._tied == self.scores[:, -1]) & (self._tied > NOTHING)

    def _best_groups(self, scores: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k groups of neighbouring columns with the highest maximum, and the left-over columns.

        The k best columns are among them: every other group's maximum is at most the k-th of the
        chosen maxima. A maximum costs far less than a top-k over the same columns.
        """
        n_queries, n_columns = scores.shape
        n_groups = n_columns // group
        whole = scores[:, : n_groups * group].unflatten(1, (n_groups, group))
        best, groups = whole.amax(dim=2).topk(self.k + 1, dim=1)
        self._note(best)
        groups = groups[:, : self.k].sort(dim=1).values  # (B, k)
        offsets = torch.arange(group, device=scores.device)
        columns = (groups[:, :, None] * group + offsets).flatten(1)  # (B, k * group), rising
        rest = torch.arange(n_groups * group, n_columns, device=scores.device)
        columns = torch.cat([columns, rest.expand(n_queries, -1)], dim=1)
        return scores.gather(1, columns), columns

    def _note(self, best: torch.Tensor) -> None:
        """Remember a tie between the last value kept and the first one dropped."""
        if best.shape[1] > self.k:
            last, first = best[:, self.k - 1], best[:, self.k]
            tied = torch.where(last == first, last, NOTHING)
            self._tied = torch.maximum(self._tied, tied)


class KeyedTop:
    """As ``RunningTop``, exact under any ties, slower; blocks may come in any order.

    Args:
        n_queries: B.
        k: How many to keep.
        device: Where the blocks are.
    """

    def __init__(self, n_queries: int, k: int, device: torch.device) -> None:
        self.k = k
        worst = torch.full((n_queries, k), NOTHING, device=device)
        self._keys = _keys(worst, torch.full((k,), _LOW, device=device))

    def add(self, scores: torch.Tensor, start: int) -> None:
        """Take in a block (B, C) of the labels ``start`` to ``start + C``."""
        rows = torch.arange(start, start + scores.shape[1], device=scores.device)
        keys = _keys(scores, rows)
        best = keys.topk(min(self.k, scores.shape[1]), dim=1).values
        self._keys = torch.cat([self._keys, best], dim=1).topk(self.k, dim=1).values

    def unsure(self) -> torch.Tensor:
        """(B,) False everywhere: no tie is ever cut blindly."""
        return torch.zeros(len(self._keys), dtype=torch.bool, device=self._keys.device)

    @property
    def scores(self) -> torch.Tensor:
        """(B, k), falling."""
        high = (self._keys >> 32).int()
        return (high ^ ((high >> 31) & 0x7FFFFFFF)).view(torch.float32)

    @property
    def rows(self) -> torch.Tensor:
        """(B, k); meaningless where the score is -inf."""
        return _LOW - (self._keys & _LOW)


def group_size(n_columns: int, k: int) -> int:
    """How many neighbouring columns share a maximum: near sqrt(C / k), 1 where it does not pay."""
    group = 1
    while group < 64 and (2 * group) ** 2 * k <= n_columns:
        group *= 2
    return group if group >= 4 and n_columns // group > k else 1


def _keys(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """One int64 per score: larger for a higher score, then for a smaller row."""
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0, which is equal to it
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats fall as integers; turn them
    return (rising.long() << 32) | (_LOW - rows)
