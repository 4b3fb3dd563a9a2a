"""The first vectors of labels that are new in a run that starts from another one.

Training moves label vectors away from those of their texts, and lowers most scores. The vector of a
new label's text would score above the trained ones and take their places in the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.compute.encoding import Tokens
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.encode_on_ranks import encoded_on_ranks
from umpteen.training.prepare import Prepared
from umpteen.types import Ragged

MAX_FITTED = 20_000
"""Known labels that the regression is fitted on, drawn at random."""
MIN_FITTED = 10
"""With fewer known labels, vectors of new ones are left as they are."""
ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
TEXTS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class _Some:
    """Some texts of a token store, not copied."""

    tokens: Tokens
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Any:
        return np.asarray(self.tokens.lengths)[self.rows]

    def take(self, rows: Any) -> Ragged:
        return self.tokens.take(self.rows[np.asarray(rows)])


def start_new_labels_(
    model: Model,
    data: Prepared,
    known: NDArray[np.bool_],
    *,
    precision: str,
    seed: int,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Set the vectors of new labels to what their texts predict.

    A ridge regression over the known labels goes from the vector of a label's text to the trained
    vector of the label; its penalty is chosen by leave-one-out error. All ranks must call it.

    Args:
        model: With the vectors of known labels.
        data: Its labels in the same order.
        known: (L,) whether the other run has trained the vector of a label.
        precision: Of the encoder.
        seed: Chooses the labels of the regression.
        ranks: Who holds which label vectors.
    """
    old, new = np.flatnonzero(known), np.flatnonzero(~known)
    if model.label_vectors is None or len(old) < MIN_FITTED or not len(new):
        return
    if len(old) > MAX_FITTED:
        old = np.sort(np.random.default_rng([seed, 0x1AB]).permutation(old)[:MAX_FITTED])
    table, own = model.label_vectors.data, ranks.shard(len(known))
    places = np.flatnonzero((old >= own.start) & (old < own.stop))
    kind = torch.promote_types(table.dtype, torch.float32)
    trained = torch.zeros(len(old), table.shape[1], dtype=kind, device=table.device)
    trained[_index(places, table)] = table[_index(old[places] - own.start, table)].to(kind)
    ranks.sum_(trained)
    was_training = model.training
    model.eval()

    def vectors_of(tokens: Any) -> Tensor:
        found = encode_texts(model, tokens, model.classifier, precision=precision)
        return torch.nn.functional.normalize(found, dim=1)

    texts = encoded_on_ranks(vectors_of, _Some(data.labels, old), ranks)
    predict = _fitted(_double(texts), _double(trained))
    rows = new[(new >= own.start) & (new < own.stop)]
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        some = rows[start : start + TEXTS_AT_ONCE]
        predicted = torch.from_numpy(predict(_double(vectors_of(_Some(data.labels, some)))))
        table[_index(some - own.start, table)] = predicted.to(table)
    model.train(was_training)


def _fitted(texts: NDArray[np.float64], trained: NDArray[np.float64]) -> Any:
    from sklearn.linear_model import RidgeCV

    return RidgeCV(alphas=ALPHAS).fit(texts, trained).predict


def _index(rows: NDArray[np.int64], table: Tensor) -> Tensor:
    return torch.from_numpy(rows).to(table.device)


def _double(vectors: Tensor) -> NDArray[np.float64]:
    return vectors.detach().double().cpu().numpy()
