"""Gradients of several processes, added up, against the sum that one process makes."""

import pytest
import torch
from rank_children import on_ranks, said

from umpteen.compute.distributed import gradient_sums
from umpteen.compute.distributed.gradient_sums import sum_gradients_
from umpteen.compute.distributed.sharding import Ranks

pytestmark = pytest.mark.processes

SHAPES = [(5, 3), (), (7,), (0, 4), (2, 2, 2)]


def gradient_of(rank, place, shape):
    generator = torch.Generator().manual_seed(100 * rank + place)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def dense(ranks, piece):
    """One gradient is missing on all ranks but the first, one on all of them."""
    parameters = [torch.nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in SHAPES]
    single = torch.nn.Parameter(torch.zeros(3, 2))  # float32 among float64
    turned = torch.nn.Parameter(torch.zeros(2, 3))
    nothing = torch.nn.Parameter(torch.zeros(3))
    for place, parameter in enumerate(parameters):
        if place != 2 or ranks.first:
            parameter.grad = gradient_of(ranks.rank, place, SHAPES[place])
    single.grad = torch.full((3, 2), 1.0 + ranks.rank)
    turned.grad = torch.arange(6.0).reshape(3, 2).T  # not contiguous
    before, gradient_sums.PIECE = gradient_sums.PIECE, piece
    sum_gradients_([*parameters, single, nothing, turned], ranks)
    gradient_sums.PIECE = before
    for place, parameter in enumerate(parameters):
        givers = range(1) if place == 2 else range(ranks.world)
        expected = sum(gradient_of(rank, place, SHAPES[place]) for rank in givers)
        torch.testing.assert_close(parameter.grad, expected)
    assert single.grad.tolist() == [[sum(range(1, ranks.world + 1))] * 2] * 3
    assert turned.grad.tolist() == (ranks.world * torch.arange(6.0).reshape(3, 2).T).tolist()
    assert nothing.grad is None


def rows_of(rank):
    """Rank 0 has rows 1 and 4 (row 4 twice), rank 1 rows 4 and 0, rank 2 none at all."""
    return ([4, 1, 4], [4, 0], [])[rank]


def sparse(ranks):
    table = torch.nn.Parameter(torch.zeros(9, 2, dtype=torch.float64))
    rows = torch.tensor(rows_of(ranks.rank), dtype=torch.int64)
    if len(rows):
        values = torch.nn.functional.embedding(rows, table, sparse=True)
        (values * (1.0 + ranks.rank)).sum().backward()
    sum_gradients_([table], ranks)
    assert table.grad.is_sparse
    expected = torch.zeros(9, 2, dtype=torch.float64)
    for rank in range(ranks.world):
        for row in rows_of(rank):
            expected[row] += 1.0 + rank
    assert torch.equal(table.grad.to_dense(), expected)
    touched = sorted({row for rank in range(ranks.world) for row in rows_of(rank)})
    assert table.grad.coalesce().indices()[0].tolist() == touched  # and no row beside them


def all_of_it(ranks, folder):
    for piece in (1, 10, 1 << 24):
        dense(ranks, piece)
    sparse(ranks)


def test_three_ranks_have_the_sum_of_their_gradients(tmp_path):
    assert on_ranks(__file__, "all_of_it", 3, tmp_path) == [0, 0, 0], said(tmp_path)


def test_one_rank_keeps_its_gradients():
    weights = torch.nn.Parameter(torch.ones(3))
    weights.grad = torch.arange(3.0)
    given = weights.grad
    sum_gradients_([weights, torch.nn.Parameter(torch.ones(2))], Ranks())
    assert weights.grad is given


@pytest.mark.parametrize("most", [1, 4, 100])
def test_pieces_hold_every_gradient_once_in_order(most, monkeypatch):
    monkeypatch.setattr(gradient_sums, "PIECE", most)
    gradients = [torch.zeros(n) for n in (3, 1, 1, 9, 2)]
    pieces = list(gradient_sums._pieces(gradients))
    assert [id(g) for piece in pieces for g in piece] == [id(g) for g in gradients]
    for piece in pieces:
        assert len(piece) == 1 or sum(g.numel() for g in piece) <= most
