"""A loss of one's own, named in the settings.

python custom_objective.py DATA RUN [key=value ...]
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

import umpteen
from umpteen.objectives.base import sum_by_row
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.types import Positives

MARGIN = 0.5


class MarginSoftmax:
    """Decoupled softmax in which a positive must beat the negatives by a margin."""

    def __init__(self) -> None:
        self._base = DecoupledSoftmax()

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        return self._base.row_stats(scores, positives)

    def merge(self, stats: Tensor) -> Tensor:
        return self._base.merge(stats)

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        terms = torch.nn.functional.softplus(stats[positives.rows, 0] - positive_scores + MARGIN)
        return sum_by_row(terms * weights * positives.targets, positives.rows, len(stats))


def main(folder: str, run: str, *settings: str) -> None:
    # The module's name, not __main__: the run's settings must make sense to another program too.
    name = f"{Path(__file__).stem}:{MarginSoftmax.__name__}"
    data = umpteen.load_dataset(folder)
    model = umpteen.train(data, out=run, overrides=[f"loss.dual={name}", *settings])
    print(umpteen.evaluate(model, data, metrics=["P@1", "P@5"]).as_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
