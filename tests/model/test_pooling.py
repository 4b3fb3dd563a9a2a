import torch

from umpteen.model.pooling import POOLINGS


def test_mean_counts_real_tokens_alone():
    hidden = torch.tensor([[[1.0], [3.0], [100.0]], [[5.0], [100.0], [100.0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert POOLINGS["mean"](hidden, mask).tolist() == [[2.0], [5.0]]


def test_first_takes_the_first_token():
    hidden = torch.arange(6.0).reshape(1, 3, 2)
    assert POOLINGS["first"](hidden, torch.ones(1, 3, dtype=torch.bool)).tolist() == [[0.0, 1.0]]


def test_last_takes_the_last_real_token():
    hidden = torch.arange(12.0).reshape(2, 3, 2)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert POOLINGS["last"](hidden, mask).tolist() == [[2.0, 3.0], [10.0, 11.0]]
