"""Top-k under ties, block by block, against a sort."""

import pytest
import torch

from umpteen.index.topk import KeyedTop, RunningTop, group_size

CPU = torch.device("cpu")


def feed(kind, scores, k, width):
    top = kind(len(scores), k, CPU)
    for start in range(0, scores.shape[1], width):
        top.add(scores[:, start : start + width], start)
    return top


@pytest.mark.parametrize("width", [1, 13, 500, 4000])
@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("values", [3, 50, 10**6])
def test_both_equal_a_stable_sort_wherever_they_are_sure(width, k, values):
    generator = torch.Generator().manual_seed(width * k)
    n_columns = min(600 * width, 4000)
    scores = torch.randint(-values, values, (9, n_columns), generator=generator).float()
    wanted = scores.sort(dim=1, descending=True, stable=True)
    keyed = feed(KeyedTop, scores, k, width)
    assert torch.equal(keyed.rows, wanted.indices[:, :k])
    assert torch.equal(keyed.scores, wanted.values[:, :k])
    running = feed(RunningTop, scores, k, width)
    sure = ~running.unsure()
    assert torch.equal(running.scores, wanted.values[:, :k])
    assert torch.equal(running.rows[sure], wanted.indices[sure, :k])
    if values == 10**6:
        assert sure.float().mean() > 0.8  # without this the first path would be for nothing


def test_tie_inside_the_top_leaves_no_doubt():
    scores = torch.tensor([[1.0, 5.0, 3.0, 5.0, 2.0]])
    top = feed(RunningTop, scores, 3, 5)
    assert top.rows.tolist() == [[1, 3, 2]]
    assert not top.unsure().any()


def test_tie_at_the_last_place_is_noticed():
    scores = torch.tensor([[1.0, 5.0, 3.0, 3.0, 2.0]])
    assert feed(RunningTop, scores, 2, 5).unsure().tolist() == [True]


def test_tie_that_a_later_block_outdoes_is_forgotten():
    scores = torch.tensor([[3.0, 3.0, 3.0, 9.0, 8.0, 7.0]])
    top = feed(RunningTop, scores, 2, 3)
    assert top.rows.tolist() == [[3, 4]]
    assert not top.unsure().any()


def test_columns_without_a_score_are_no_tie():
    scores = torch.full((1, 40), -torch.inf)
    scores[0, 7] = 1.0
    top = feed(RunningTop, scores, 2, 10)
    assert top.scores.tolist() == [[1.0, -torch.inf]]
    assert not top.unsure().any()


@pytest.mark.parametrize("k", [1, 5, 100, 1000])
@pytest.mark.parametrize("n_columns", [1, 100, 8192, 32768])
def test_group_leaves_more_groups_than_are_kept(n_columns, k):
    group = group_size(n_columns, k)
    assert group == 1 or n_columns // group > k


def test_negative_zero_ties_with_zero():
    scores = torch.tensor([[-0.0, 0.0, -0.0, 0.0]])
    assert feed(KeyedTop, scores, 3, 4).rows.tolist() == [[0, 1, 2]]
    assert feed(KeyedTop, scores, 3, 1).rows.tolist() == [[0, 1, 2]]
