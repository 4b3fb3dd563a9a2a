import torch

from umpteen.objectives.base import block_loss
from umpteen.objectives.reductions import mean_of_positives
from umpteen.objectives.softmax import Softmax
from umpteen.types import Positives


def test_with_one_positive_per_row_it_is_cross_entropy():
    scores = torch.randn(6, 9, dtype=torch.float64)
    wanted = torch.tensor([0, 8, 3, 3, 1, 8])
    positives = Positives(torch.arange(6), wanted, torch.ones(6, dtype=torch.float64))
    expected = torch.nn.functional.cross_entropy(scores, wanted)
    torch.testing.assert_close(
        block_loss(Softmax(), mean_of_positives, scores, positives), expected
    )


def test_positives_share_one_denominator():
    scores = torch.zeros(1, 2)  # two positives at the same height: each has half of the mass
    positives = Positives(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2))
    loss = block_loss(Softmax(), mean_of_positives, scores, positives)
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
