import numpy as np
import pytest
import torch

from umpteen.compute.streaming.label_pairs import sort_pairs, weigh
from umpteen.errors import LabelMismatch
from umpteen.objectives.reductions import mean_of_positives, one_of_positives
from umpteen.types import Positives

CPU = torch.device("cpu")


def test_blocks_are_half_open_and_share_out_every_pair_once():
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 5, 40), rng.integers(0, 17, 40)
    pairs = sort_pairs(rows, cols, n_queries=5, n_labels=17, device=CPU)
    for size in (1, 4, 16, 17, 18):
        seen = []
        for start in range(0, 17, size):
            part = pairs.between(start, start + size)
            assert all(start <= col < start + size for col in pairs.cols[part].tolist())
            seen += zip(pairs.rows[part].tolist(), pairs.cols[part].tolist(), strict=True)
        assert sorted(seen) == sorted(zip(rows.tolist(), cols.tolist(), strict=True))
    assert (pairs.n_rows, pairs.n_cols) == (len(set(rows)), len(set(cols)))


@pytest.mark.parametrize(
    ("rows", "cols", "sentence"),
    [
        ([0, 3], [0, 0], "query row 3; rows are 0 to 2"),
        ([0, 1], [0, 4], "label row 4; rows are 0 to 3"),
        ([0, 1], [-1, 0], "label row -1; rows are 0 to 3"),
    ],
)
def test_pairs_outside_are_refused(rows, cols, sentence):
    with pytest.raises(LabelMismatch, match=sentence):
        sort_pairs(np.array(rows), np.array(cols), n_queries=3, n_labels=4, device=CPU)


def test_weights_are_found_before_sorting_and_follow_their_pairs():
    given = Positives(
        torch.tensor([0, 0, 1]), torch.tensor([2, 0, 1]), torch.tensor([0.5, 1.0, 0.2])
    )
    order = torch.tensor([1, 2, 0])
    side = weigh(mean_of_positives, given, 2, order, labels_choose=False)
    assert side.positives.cols.tolist() == [0, 1, 2]
    torch.testing.assert_close(side.weights, torch.tensor([1 / 1.5, 1 / 0.2, 1 / 1.5]))
    assert side.absent is None
    torch.manual_seed(1)
    drawn = one_of_positives(given, 2)
    torch.manual_seed(1)
    side = weigh(one_of_positives, given, 2, order, labels_choose=False)
    assert torch.equal(side.weights, drawn[order])
    assert torch.equal(torch.isneginf(side.absent), side.weights == 0)
    assert torch.equal(side.positives.targets > 0, side.weights > 0)


def test_each_side_sees_its_rows_and_dropped_positives_are_absent():
    scores = torch.arange(6.0).view(2, 3)  # labels 4, 5, 6 of two queries
    positives = Positives(torch.tensor([0, 1]), torch.tensor([4, 6]), torch.ones(2))
    order = torch.tensor([0, 1])
    side = weigh(mean_of_positives, positives, 2, order, labels_choose=False)
    seen, found, inside = side.view(scores, slice(0, 2), 4)
    assert seen is scores
    assert found.tolist() == [0.0, 5.0]
    assert inside.cols.tolist() == [0, 2]
    turned = weigh(mean_of_positives, positives.transposed(), 7, order, labels_choose=True)
    seen, found, inside = turned.view(scores, slice(0, 2), 4)
    assert torch.equal(seen, scores.T)
    assert found.tolist() == [0.0, 5.0]
    assert (inside.rows.tolist(), inside.cols.tolist()) == ([0, 2], [0, 1])

    def second(positives, n_rows):
        return torch.tensor([0.0, 1.0])

    second.drops = True
    side = weigh(second, positives, 2, order, labels_choose=False)
    seen, found, inside = side.view(scores, slice(0, 2), 4)
    assert seen.tolist() == [[float("-inf"), 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert found.tolist() == [0.0, 5.0]
    assert inside.targets.tolist() == [0.0, 1.0]
    assert scores[0, 0] == 0  # the block itself is left alone
