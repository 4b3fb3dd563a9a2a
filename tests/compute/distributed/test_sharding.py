"""Shards cover all labels once; what goes between processes arrives, and silence is noticed."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from rank_children import on_ranks, said

from umpteen.compute.distributed.sharding import Ranks, even_bounds, start_ranks
from umpteen.errors import ConfigError, RankLost

pytestmark = pytest.mark.processes

# -- one process --------------------------------------------------------------------------------


@pytest.mark.parametrize("world", range(1, 10))
def test_shards_are_disjoint_cover_all_labels_and_differ_by_one_at_most(world):
    for n_labels in range(65):
        shards = [Ranks(rank, world).shard(n_labels) for rank in range(world)]
        rows = [row for shard in shards for row in range(shard.start, shard.stop)]
        assert rows == list(range(n_labels))
        sizes = [len(shard) for shard in shards]
        assert max(sizes) - min(sizes) <= 1
        assert even_bounds(n_labels, world).tolist() == [*(s.start for s in shards), n_labels]


def test_the_largest_label_sets_have_exact_bounds():
    bounds = even_bounds(450_000_001, 7)
    assert bounds[0] == 0
    assert bounds[-1] == 450_000_001
    assert np.ptp(np.diff(bounds)) <= 1


def test_one_rank_gets_back_what_it_gives():
    ranks, rows = Ranks(), torch.randn(5, 3, requires_grad=True)
    bounds = ranks.bounds(5)
    assert ranks.gather_rows(rows, bounds) is rows
    assert torch.equal(ranks.stack(rows), rows.unsqueeze(0))
    assert torch.equal(ranks.rows_to_first(rows, bounds), rows)
    assert ranks.json_from_first({"a": [1]}) == {"a": [1]}
    assert ranks.highest(True, 0.5) == [1.0, 0.5]
    with ranks.first_goes_first():
        ranks.wait()
    ranks.close()


def test_without_torchrun_there_is_one_rank(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert start_ranks(torch.device("cpu")) == Ranks()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert start_ranks(torch.device("cpu")) == Ranks(0, 1, restarts=2)


@pytest.mark.parametrize(("rank", "world"), [("one", "2"), ("2", "2"), ("-1", "2"), ("0", "")])
def test_an_environment_that_torchrun_would_not_make_is_refused(rank, world, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ConfigError, match="RANK"):
        start_ranks(torch.device("cpu"))


# -- several: these run on every rank -------------------------------------------------------------


def exchange(ranks, folder):
    """Everything a rank can ask of the others, against what it must be."""
    world, me = ranks.world, ranks.rank
    whole = torch.arange(28, dtype=torch.float64).reshape(7, 4)
    for n in (7, 1, 0):  # with one row, or none, most ranks give nothing
        bounds = ranks.bounds(n)
        part = ranks.shard(n)
        own = whole[part.start : part.stop].clone().requires_grad_()
        found = ranks.gather_rows(own, bounds)
        assert torch.equal(found, whole[:n])
        # Each rank sends back its own multiple: the gradient is the sum, at the owner's rows.
        (found * (me + 1) * whole[:n].sin()).sum().backward()
        expected = whole[part.start : part.stop].sin() * sum(range(1, world + 1))
        torch.testing.assert_close(own.grad, expected)
        counts = ranks.rows_to_first(torch.arange(part.start, part.stop), bounds)
        assert (counts is None) == (me != 0)
        assert me or counts.tolist() == list(range(n))
        everyone = ranks.concatenate(torch.full((len(part),), float("-inf")), bounds)
        assert torch.isneginf(everyone).all()
        assert len(everyone) == n
    assert ranks.stack(torch.tensor([me, 2 * me])).tolist() == [[r, 2 * r] for r in range(world)]
    assert ranks.from_first(torch.tensor([me + 5])).item() == 5
    assert ranks.json_from_first({"ä": [1.5, None]} if me == 0 else "not this") == {
        "ä": [1.5, None]
    }
    table = np.arange(6, dtype=np.int32).reshape(2, 3)
    nothing = np.zeros((4, 0), np.int32)
    given = [table, nothing] if me == 0 else [np.zeros(0, np.int32)] * 2
    for one, other in zip(ranks.arrays_from_first(given), (table, nothing), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert ranks.highest(me, me == 1) == [world - 1, 1.0]
    with ranks.first_goes_first():
        if me == 0:
            time.sleep(0.2)
            (folder / "first").touch()
        assert (folder / "first").exists()


def gather_from_a_rank_without_a_gradient(ranks, folder):
    """A rank whose rows need no gradient must not leave the others waiting in backward."""
    own = torch.ones(1, 2).requires_grad_(ranks.rank == 0)
    (ranks.gather_rows(own, ranks.bounds(ranks.world)) * 2).sum().backward()
    assert ranks.rank or own.grad.tolist() == [[2.0 * ranks.world] * 2]


def all_of_it(ranks, folder):
    exchange(ranks, folder)
    gather_from_a_rank_without_a_gradient(ranks, folder)


def lose_one(ranks, folder):
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ranks.sum_(torch.ones(3))
    except RankLost as error:
        print(error)
        raise SystemExit from error


def hang_one(ranks, folder):
    if ranks.rank == 1:
        while not (folder / "noticed").exists():
            time.sleep(0.05)
        return
    try:
        ranks.wait()
    except RankLost as error:
        print(error)
        (folder / "noticed").touch()
        raise SystemExit from error


# -- and these start them ---------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
def test_what_ranks_exchange_arrives(world, tmp_path):
    codes = on_ranks(__file__, "all_of_it", world, tmp_path)
    assert codes == [0] * world, said(tmp_path)


def test_a_rank_that_dies_is_noticed_at_once_and_named_in_a_sentence(tmp_path):
    codes = on_ranks(__file__, "lose_one", 2, tmp_path, patience=600)
    assert codes[1] == -signal.SIGKILL
    assert "rank 0 of 2 (counted from 0) gets no answer" in said(tmp_path)
    assert "--resume" in said(tmp_path)


def test_a_rank_that_hangs_is_noticed_when_patience_ends(tmp_path):
    on_ranks(__file__, "hang_one", 2, tmp_path, patience=3.0)  # 1 is too few to meet
    assert "rank 0 of 2 (counted from 0) gets no answer" in said(tmp_path)
