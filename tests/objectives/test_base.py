import torch

from umpteen.objectives.base import logsumexp, sum_by_row

NOTHING = float("-inf")


def test_logsumexp_of_nothing_is_minus_infinity_with_a_gradient_of_zero():
    scores = torch.tensor([[NOTHING, NOTHING], [0.0, NOTHING]], requires_grad=True)
    result = logsumexp(scores, dim=1)
    assert result.tolist() == [NOTHING, 0.0]
    result[1].backward()
    assert scores.grad.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_logsumexp_equals_torch_where_there_is_something():
    scores = torch.randn(3, 5, 4, dtype=torch.float64)
    for dim in (0, 1, 2):
        torch.testing.assert_close(logsumexp(scores, dim), torch.logsumexp(scores, dim))


def test_sum_by_row_adds_up_repeated_rows_and_leaves_the_rest_zero():
    values = torch.tensor([1.0, 2.0, 4.0])
    assert sum_by_row(values, torch.tensor([2, 0, 2]), 4).tolist() == [2.0, 0.0, 5.0, 0.0]
