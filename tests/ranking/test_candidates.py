"""Unions, the best of each query and blocks of different width equal plain loops."""

import numpy as np
import pytest
import torch

from umpteen.ranking.candidates import best_candidates, concat, rows_of_pairs, take, top_k, union

from .samples import made


def slow_union(lists, excluded, n):
    found = []
    for query in range(n):
        rows = {int(row) for each in lists for row in each[query] if row >= 0}
        if excluded is not None:
            rows -= set(excluded[query].tolist())
        found.append(sorted(rows))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_union_equals_sets_of_each_query(seed):
    rng = np.random.default_rng(seed)
    n = [7, 1, 23, 3][seed]
    lists = [
        torch.from_numpy(np.where(rng.random((n, k)) < 0.3, -1, rng.integers(0, 30, (n, k))))
        for k in (5, 1, 8)
    ]
    pairs = np.column_stack([rng.integers(0, n, 9), rng.integers(0, 30, 9)])
    excluded = rows_of_pairs(torch.from_numpy(pairs), n)
    for given in (None, excluded):
        found = union(lists, given)
        expected = slow_union(lists, given, n)
        assert found.shape == (n, max(1, *map(len, expected)))
        assert [[r for r in own if r >= 0] for own in found.tolist()] == expected
        width = found.shape[1]
        assert all(
            own == e + [-1] * (width - len(e))
            for own, e in zip(found.tolist(), expected, strict=True)
        )
    assert (2**33) in union([torch.tensor([[2**33, 5]])]).tolist()[0]


def test_union_of_nothing_is_padding():
    assert union([torch.full((3, 2), -1)]).tolist() == [[-1]] * 3
    assert union([torch.full((1, 2), -1), torch.zeros((1, 0), dtype=torch.int64)]).tolist() == [
        [-1]
    ]
    assert union([torch.zeros((0, 4), dtype=torch.int64)]).shape == (0, 1)
    assert union([torch.tensor([[4, 4]])], torch.tensor([[4]])).tolist() == [[-1]]


def test_pairs_become_rows_of_each_query():
    pairs = torch.tensor([[2, 7], [0, 3], [2, 1]])
    assert rows_of_pairs(pairs, 4).tolist() == [[3, -1], [-1, -1], [7, 1], [-1, -1]]
    assert rows_of_pairs(pairs[:0], 4).shape == (4, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 4, 11, 15])
def test_best_come_first_and_ties_go_to_the_smaller_row(dtype, k):
    candidates, _ = made(n=31)
    rng = np.random.default_rng(1)
    scores = rng.choice([-np.inf, -1e30, -2.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 3.0], (31, 11))
    positions = top_k(torch.from_numpy(scores).to(dtype), candidates.rows, k)
    assert positions.shape == (31, k)
    for query in range(31):
        rows = candidates.rows[query].tolist()
        own = [place for place in range(11) if rows[place] >= 0]
        own.sort(key=lambda place: (-scores[query, place], rows[place]))
        expected = (own + [-1] * k)[:k]
        assert positions[query].tolist() == expected
    chosen = take(candidates.rows, positions, -1)
    assert ((chosen < 0) == (positions < 0)).all()


def test_nan_at_padding_does_not_matter():
    candidates, _ = made(n=9)
    scores = candidates.scores["dual"]
    clean = torch.nan_to_num(scores, nan=0.0)
    assert torch.equal(top_k(scores, candidates.rows, 5), top_k(clean, candidates.rows, 5))


def test_blocks_of_different_width_are_padded():
    left, _ = made(n=5, k=3)
    right, _ = made(n=4, k=6, seed=1)
    both = concat([left, right])
    assert both.rows.shape == (9, 6)
    assert both.rows[:5, 3:].unique().tolist() == [-1]
    assert both.counts[:5, 3:].unique().tolist() == [0]
    again = both.select(torch.arange(5, 9))
    assert torch.equal(again.rows, right.rows)
    for name, values in right.scores.items():
        assert torch.equal(again.scores[name][right.valid], values[right.valid])
    mask = torch.arange(9) % 2 == 0
    assert torch.equal(both.select(mask).counts, both.counts[::2])
    assert len(both.select(mask)) == 5


def test_best_candidates_carry_falling_probabilities():
    rows = torch.tensor([[4, 5, 6], [-1, -1, -1], [1, 7, -1]])
    scores = torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 9.0]])
    chances = torch.tensor([[0.1, 0.8, 0.8 + 1e-7], [0.0, 0.0, 0.0], [0.2, 0.4, 0.9]])
    found, best = best_candidates(scores, chances, rows, 2)
    assert found.tolist() == [[5, 6], [-1, -1], [7, 1]]
    np.testing.assert_allclose(best, [[0.8, 0.8], [-np.inf, -np.inf], [0.4, 0.2]])
    assert best[0, 0] == best[0, 1]
