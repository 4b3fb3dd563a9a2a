"""Lost labels are in no candidates and not among the right ones; other texts stay as they are."""

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.data.dataset import Split
from umpteen.ranking.candidates import Candidates
from umpteen.training.lost_labels import known_part, lost_labels


def test_a_label_is_lost_where_the_fold_has_its_last_text():
    run, fold = np.array([3, 1, 2, 1, 0]), np.array([2, 0, 2, 0, 0])
    assert lost_labels(run, fold).tolist() == [False, True, False, True, False]


def test_none_is_lost_where_as_many_never_had_a_text():
    run, fold = np.array([3, 1, 0, 1, 0]), np.array([2, 0, 0, 0, 0])
    assert not lost_labels(run, fold).any()


def drawn(n=7, n_labels=13, width=5, seed=3):
    """Texts with labels and candidates in ascending order, some of them padded."""
    rng = np.random.default_rng(seed)
    rows = np.full((n, width), -1)
    for own in rows:
        count = rng.integers(1, width + 1)
        own[:count] = np.sort(rng.choice(n_labels, count, replace=False))
    scores = {name: torch.from_numpy(rng.normal(size=rows.shape)).float() for name in "ab"}
    counts = torch.from_numpy(rng.integers(0, 9, rows.shape))
    targets = sp.csr_matrix((rng.random((n, n_labels)) < 0.3).astype(np.float32))
    filters = np.array([[1, 4], [n - 1, 2]])
    split = Split([f"text {i}" for i in range(n)], targets, filters=filters)
    beside = {"words": torch.from_numpy(rng.normal(size=rows.shape)).float()}
    return split, Candidates(torch.from_numpy(rows), scores, counts), beside


def test_what_is_left_equals_a_loop():
    split, found, beside = drawn()
    lost = np.random.default_rng(4).random(13) < 0.5
    part = known_part(split, found, beside, lost)
    truth = split.filtered_targets().toarray() > 0
    kept = [i for i in range(len(split)) if (truth[i] & ~lost).any()]
    assert 0 < len(kept) < len(split)
    assert part.rows.tolist() == kept
    assert list(part.split.titles) == [split.titles[i] for i in kept]
    np.testing.assert_array_equal(part.split.filtered_targets().toarray() > 0, truth[kept] & ~lost)
    for place, i in enumerate(kept):
        places = [p for p, row in enumerate(found.rows[i].tolist()) if row >= 0 and not lost[row]]
        n = len(places)
        assert part.candidates.rows[place].tolist() == [
            *found.rows[i, places].tolist(), *[-1] * (5 - n)
        ]  # fmt: skip
        assert part.candidates.counts[place, :n].tolist() == found.counts[i, places].tolist()
        for name in "ab":
            ours, theirs = part.candidates.scores[name][place, :n], found.scores[name][i, places]
            assert ours.tolist() == theirs.tolist()
        assert part.text_scores["words"][place, :n].tolist() == beside["words"][i, places].tolist()


def test_nothing_changes_where_no_label_is_lost():
    split, found, beside = drawn()
    part = known_part(split, found, beside, np.zeros(13, bool))
    assert part.split is split
    assert part.candidates is found
    assert len(part.rows) == len(split)
