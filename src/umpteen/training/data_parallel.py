"""What training does otherwise on several ranks: shares of a batch, the label table, refreshes.

With one rank everything here is what it would be without it. Checkpoints are in ``checkpoint.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.model.model import Model
from umpteen.training.embedding_bank import EmbeddingBank
from umpteen.training.refresh import Refreshed
from umpteen.training.stage_log import QUIET, StageLog
from umpteen.types import Ragged


def cut_table_(model: Model, ranks: Ranks) -> None:
    """Leave this rank's rows of the label table in the model, which still counts all labels."""
    if model.label_vectors is not None and ranks.exchanges:
        own = ranks.shard(model.n_labels)
        whole = model.label_vectors.data
        model.label_vectors = torch.nn.Parameter(whole[own.start : own.stop].clone())


@contextlib.contextmanager
def whole_table(model: Model, ranks: Ranks, *, on_host: bool = False) -> Iterator[None]:
    """Give the first rank the whole label table for the block; the others' model stays as it is.

    All ranks must enter it. The parameter stays the same one, so its optimizer does not notice.

    Args:
        model: Of this rank.
        ranks: Who holds which rows.
        on_host: Whether the whole table stays in host memory, to be written.
    """
    table = model.label_vectors
    if table is None or not ranks.exchanges:
        yield
        return
    own = table.data
    whole = ranks.rows_to_first(own, ranks.bounds(model.n_labels))
    if whole is None:
        yield
        return
    table.data = whole if on_host else whole.to(own.device)
    try:
        yield
    finally:
        table.data = own


def shared_parameters(model: Model) -> list[torch.nn.Parameter]:
    """Return the parameters that every rank holds in whole: all but the label table."""
    return [p for p in model.parameters() if p.requires_grad and p is not model.label_vectors]


def refresh_on_ranks(
    refresh: Callable[[Model, int], Refreshed],
    ranks: Ranks,
    bank: EmbeddingBank | None = None,
    log: StageLog = QUIET,
) -> Callable[[Model, int], Refreshed]:
    """Return a refresh that all ranks make together and use.

    Each then fills its own bank again. The first rank gets the whole label table where labels have
    no other vectors.
    """
    if not ranks.exchanges:
        return refresh

    def everywhere(model: Model, epoch: int) -> Refreshed:
        table = whole_table(model, ranks) if model.dual_head is None else contextlib.nullcontext()
        with log.stage("Refreshing", kind="refresh", announced=False):
            with table:
                made = refresh(model, epoch)
            if bank is not None:
                bank.vectors = None
            return made

    return everywhere


def used_heads(model: Model, dual_share: float) -> list[Callable[[Tensor], Tensor]]:
    """Return the heads that a loss with this weight of the dual one needs.

    Dual before classifier.
    """
    both = (("dual", model.dual, dual_share > 0), ("classifier", model.classifier, dual_share < 1))
    return [head for name, head, counts in both if counts and name in model.heads]


def gathered_queries(
    own: Tensor | None,
    heads: Sequence[Callable[[Tensor], Tensor]],
    model: Model,
    n: int,
    ranks: Ranks,
) -> list[Tensor]:
    """Return each head's vectors of the whole batch, from every rank's encoded part of it.

    One gathering for all heads: then all ranks meet in backward once, and in no other order.

    Args:
        own: This rank's encoded queries, None where it has none.
        heads: From encoded queries to (., model.dim).
        model: The model.
        n: Queries of the batch.
        ranks: Who encodes which: an even share each, in order.

    Returns:
        (n, model.dim) for each head.
    """
    if not ranks.exchanges:
        assert own is not None
        return [head(own) for head in heads]
    if own is None:
        like = model.log_scales
        vectors = torch.zeros(0, model.dim * len(heads), dtype=like.dtype, device=like.device)
    else:
        vectors = torch.cat([head(own) for head in heads], dim=1)
    return list(ranks.gather_rows(vectors, ranks.bounds(n)).split(model.dim, dim=1))


def some_texts(tokens: Ragged, start: int, stop: int) -> Ragged:
    """Return the texts start .. stop - 1.

    Example:
        >>> import numpy as np
        >>> found = some_texts(Ragged(np.array([7, 8, 9]), np.array([0, 1, 3])), 1, 2)
        >>> found.ids.tolist(), found.offsets.tolist()
        ([8, 9], [0, 2])
    """
    if start == 0 and stop == len(tokens):
        return tokens  # with what its encoder planned
    offsets = tokens.offsets[start : stop + 1]
    return Ragged(tokens.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
