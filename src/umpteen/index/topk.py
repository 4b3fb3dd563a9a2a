"""Top-k of score blocks under one tie rule: the smaller row first. No vectors and no files here.

``torch.topk`` promises nothing about equal scores, neither which of them it keeps at the k-th place
nor their order. Two ways around it live here: ``RunningTop`` keeps plain float scores, puts ties in
order and *notices* the rare query where a tie at the k-th place was cut blindly; ``KeyedTop`` packs
score and row into one integer, so that no two are equal, at some ten times the cost. Neither
waits for the device.
"""

from __future__ import annotations

import torch

NOTHING = -torch.inf
_LOW = 0xFFFFFFFF


class RunningTop:
    """The best k of all blocks seen so far; blocks come in rising row order."""

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
        columns = None
        group = group_size(scores.shape[1], self.k)
        if group > 1:
            scores, columns = self._best_groups(scores, group)
        places = self._best(scores)
        best = scores.gather(1, places)
        rows = start + (places if columns is None else columns.gather(1, places))
        # Stable, and earlier blocks first: equal scores stay in row order.
        merged = torch.cat([self.scores, best], dim=1)
        order = merged.sort(dim=1, descending=True, stable=True).indices[:, : self.k]
        self.scores = merged.gather(1, order)
        self.rows = torch.cat([self.rows, rows], dim=1).gather(1, order)

    def unsure(self) -> torch.Tensor:
        """Return (B,) whether a tie was cut blindly that may have touched the result."""
        return (self._tied == self.scores[:, -1]) & (self._tied > NOTHING)

    def _best_groups(self, scores: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the columns in the k groups with the highest maximum, and those in no group.

        The k best columns are among them: every other group's maximum is at most the k-th of the
        chosen maxima. A maximum costs far less than a top-k over the same columns. A group is every
        n-th column, not neighbours, because that is the reduction processors do well.

        Returns:
            (B, C') scores and columns, columns rising.
        """
        n_groups = scores.shape[1] // group
        whole = scores[:, : n_groups * group].unflatten(1, (group, n_groups))
        groups = self._best(whole.amax(dim=1))  # (B, at most k)
        device = scores.device
        steps = torch.arange(0, n_groups * group, n_groups, device=device)
        columns = (steps[:, None] + groups[:, None, :]).flatten(1)
        rest = torch.arange(n_groups * group, scores.shape[1], device=device)
        columns = torch.cat([columns, rest.expand(len(scores), -1)], dim=1)
        return scores.gather(1, columns), columns

    def _best(self, values: torch.Tensor) -> torch.Tensor:
        """Return the places of each query's best values, rising.

        K of them, or fewer where no more matter.

        A tie between the last one kept and the first one dropped is recorded.
        """
        last = self.scores[:, -1]
        count = min(self.k, values.shape[1])
        if values.device.type == "cpu":
            # Only what beats the k-th so far matters: an equal score of a later row loses. On a GPU
            # the count would make the host wait. Not "<=" rather than ">", to let NaN through.
            count = min(count, int((~(values <= last[:, None])).sum(dim=1).max()))
        best, places = values.topk(min(count + 1, values.shape[1]), dim=1)
        if self.k == count < best.shape[1]:
            kept, dropped = best[:, count - 1], best[:, count]
            tied = torch.where((kept == dropped) & (kept > last), kept, NOTHING)
            self._tied = torch.maximum(self._tied, tied)
        return places[:, :count].sort(dim=1).values


class KeyedTop:
    """As ``RunningTop``, exact under any ties, slower; blocks may come in any order."""

    def __init__(self, n_queries: int, k: int, device: torch.device) -> None:
        self.k = k
        worst = torch.full((n_queries, k), NOTHING, device=device)
        self._keys = keys_of(worst, torch.full((k,), _LOW, device=device))

    def add(self, scores: torch.Tensor, start: int) -> None:
        """Take in a block (B, C) of the labels ``start`` to ``start + C``."""
        rows = torch.arange(start, start + scores.shape[1], device=scores.device)
        keys = keys_of(scores, rows)
        best = keys.topk(min(self.k, scores.shape[1]), dim=1).values
        self._keys = torch.cat([self._keys, best], dim=1).topk(self.k, dim=1).values

    def unsure(self) -> torch.Tensor:
        """Return (B,) False everywhere: no tie is ever cut blindly."""
        return torch.zeros(len(self._keys), dtype=torch.bool, device=self._keys.device)

    @property
    def scores(self) -> torch.Tensor:
        """(B, k), falling."""
        return scores_of(self._keys)

    @property
    def rows(self) -> torch.Tensor:
        """(B, k); meaningless where the score is -inf."""
        return rows_of(self._keys)


def group_size(n_columns: int, k: int) -> int:
    """Return how many columns share a maximum: near sqrt(C / k), 1 where it does not pay."""
    group = 1
    while group < 64 and (2 * group) ** 2 * k <= n_columns:
        group *= 2
    return group if group >= 4 and n_columns // group > k else 1


def keys_of(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return one int64 per score: larger for a higher score, then for a smaller row."""
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0, which is equal to it
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats fall as integers; turn them
    return (rising.long() << 32) | (_LOW - rows)


def scores_of(keys: torch.Tensor) -> torch.Tensor:
    """Return the scores that keys were made from."""
    high = (keys >> 32).int()
    return (high ^ ((high >> 31) & 0x7FFFFFFF)).view(torch.float32)


def rows_of(keys: torch.Tensor) -> torch.Tensor:
    """Return the rows that keys were made from."""
    return _LOW - (keys & _LOW)
