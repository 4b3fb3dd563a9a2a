"""Texts of several folds with their candidates, joined."""

import numpy as np
import torch

from umpteen.data.dataset import Propensity
from umpteen.ranking.candidates import Candidates
from umpteen.training.ensemble_validation import Judge
from umpteen.training.retrieved import Retrieved, join_retrieved, without_lost


def part(data, rows, width):
    """Candidates 0, 1, ... of every text."""
    split = data["train"].select(np.array(rows))
    labels = torch.arange(width).expand(len(rows), width).clone()
    found = Candidates(labels, {"dual": labels * 0.5}, labels + 1)
    judge = Judge(split, data.label_counts, len(data["train"]), Propensity())
    truth = torch.from_numpy(judge.truth.toarray() > 0)[:, :width]
    return Retrieved(list(split.titles), found, {"words": labels * 2.0}, truth, judge)


def test_joined_texts_keep_their_candidates_and_labels(tiny_data):
    one, other = part(tiny_data, [3, 0, 9], 6), part(tiny_data, [7, 5], 9)
    both = join_retrieved([one, other], one.judge)
    titles = [tiny_data["train"].titles[row] for row in (3, 0, 9, 7, 5)]
    assert both.texts == list(both.judge.split.titles) == titles
    assert both.judge.cross_validated
    assert both.found.rows[:3, 6:].tolist() == [[-1] * 3] * 3
    assert both.found.rows[3:].tolist() == other.found.rows.tolist()
    assert both.text_scores["words"][:3, :6].tolist() == one.text_scores["words"].tolist()
    truth = tiny_data["train"].filtered_targets()[[3, 0, 9, 7, 5]].toarray() > 0
    np.testing.assert_array_equal(both.judge.truth.toarray() > 0, truth)
    np.testing.assert_array_equal(both.positive[:, :6].numpy(), truth[:, :6])


def test_a_fold_that_knows_no_label_stays_as_it_is(tiny_data):
    own = part(tiny_data, [3, 0, 9], 6)
    assert without_lost(own, np.ones(len(tiny_data.labels), bool)) is own


def test_a_lost_label_is_no_candidate(tiny_data):
    own = part(tiny_data, [3, 0, 9], 6)
    lost = np.zeros(len(tiny_data.labels), bool)
    lost[2] = True
    kept = without_lost(own, lost)
    assert not (kept.found.rows == 2).any()
    assert kept.judge.truth[:, 2].nnz == 0
