"""The loop: losses that arrive late or not finite, progress, and stopping between ticks."""

import numpy as np
import pytest
import torch
from small_runs import SETTINGS

from umpteen.config.loading import load_config
from umpteen.errors import TrainingStopped
from umpteen.run_folder import RunFolder
from umpteen.training.batch import Batch
from umpteen.training.loop import LossWatch
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.session import Session

INFO = {"epoch": 2, "labels": 5, "positives": 1.5, "queries": 3, "lr_factor": 1.0}


def batch(*rows) -> Batch:
    return Batch(np.array(rows), None, None)


def make_loop(data, folder, *changes):
    settings = resolve_open_settings(load_config(overrides=(*SETTINGS, *changes)))
    session = Session(RunFolder(folder), settings, device="cpu", reporters=[])
    session.set_up(data, resume=False, cache=folder / "cache")
    return session.loop


def test_losses_on_the_host_arrive_at_once_and_in_order():
    watch = LossWatch()
    for step in (1, 2, 3):
        watch.push(torch.tensor(float(step)), batch(0), INFO | {"step": step})
    assert [(info.step, info.loss) for info in watch.arrived()] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert watch.arrived() == watch.drain() == []


@pytest.mark.parametrize(("value", "name"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_a_loss_that_is_not_finite_names_its_own_step(value, name):
    watch = LossWatch()
    watch.push(torch.tensor(1.0), batch(1, 2), INFO | {"step": 6})
    watch.push(torch.tensor(value), batch(9, 4), INFO | {"step": 7})
    watch.push(torch.tensor(value), batch(3), INFO | {"step": 8})
    with pytest.raises(TrainingStopped, match=rf"became {name} at step 7 \(epoch 2\).*rows 4, 9 "):
        watch.drain()


def test_rows_are_named_as_in_the_users_own_data():
    watch = LossWatch(source_rows=lambda rows: np.array([10, 20, 30])[rows])
    watch.push(torch.tensor(np.nan), batch(2, 0), INFO | {"step": 1})
    with pytest.raises(TrainingStopped, match="2 training rows 10, 30 "):
        watch.arrived()


def test_many_rows_are_cut_short():
    watch = LossWatch()
    watch.push(torch.tensor(np.nan), batch(*range(50)), INFO | {"step": 1})
    with pytest.raises(TrainingStopped, match=r"50 training rows .*, 19, \.\.\. "):
        watch.arrived()


def test_progress_is_exact(tiny_data, tmp_path):
    loop = make_loop(tiny_data, tmp_path, "batches.size=10", "train.epochs=2")
    assert loop.epochs_done() == 0
    done = []
    for tick in loop.ticks():
        done.append(loop.epochs_done())
        assert tick.epoch_done == (loop.position.batch == 0)
    n = len(done) // 2
    np.testing.assert_allclose(done, np.arange(1, 2 * n + 1) / n)


def test_every_query_is_seen_once_in_every_epoch(tiny_data, tmp_path):
    loop = make_loop(tiny_data, tmp_path, "batches.size=7", "train.epochs=3")
    seen = {1: 0, 2: 0, 3: 0}
    for tick in loop.ticks():
        for info in tick.finished:
            seen[info.epoch] += info.queries
    assert set(seen.values()) == {loop.n_queries}


@pytest.mark.parametrize(
    ("first", "every", "expected"), [(0, 2, [0, 2, 4]), (1, 3, [1, 4]), (5, 1, [])]
)
def test_refreshes_come_when_they_are_due(first, every, expected, tiny_data, tmp_path):
    changes = (f"batches.first_refresh={first}", f"batches.refresh_epochs={every}")
    loop = make_loop(tiny_data, tmp_path, "train.epochs=5", *changes)
    made, keep = [], loop.keep_refresh
    loop.keep_refresh = lambda refreshed, epoch: (made.append(epoch), keep(refreshed, epoch))
    for _ in loop.ticks():
        pass
    assert made == expected


def test_stopping_between_ticks_disturbs_nobody(tiny_data, tmp_path):
    torch.manual_seed(3)
    loop = make_loop(tiny_data, tmp_path)
    before = torch.get_rng_state()
    for _ in loop.ticks():
        break
    assert torch.equal(torch.get_rng_state(), before)
    assert (loop.position.step, loop.position.batch) == (1, 1)


def test_growing_clusters_are_random_first_and_join_between_refreshes(tiny_data, tmp_path):
    changes = ["batches.cluster_size=1", "batches.double_epochs=[1, 2, 3]", "pool.negatives=0"]
    loop = make_loop(tiny_data, tmp_path / "run", *changes, "batches.first_refresh=1")
    assert [loop.cluster_size(epoch) for epoch in range(5)] == [1, 2, 4, 8, 8]
    for tick in loop.ticks():
        if loop.position.epoch == 1 and tick.epoch_done:
            assert loop.refreshed is None  # random until the first refresh
    assert loop.position.refresh_epoch == 3
    # The plan of an epoch in which nothing was refreshed follows from seed, epoch and refresh.
    order, bounds = loop.refreshed.order, loop.refreshed.bounds
    loop.position.epoch = 3
    batches = loop.batch_rows()
    assert sorted(np.concatenate(batches).tolist()) == list(range(loop.n_queries))
    assert all(np.array_equal(a, b) for a, b in zip(batches, loop.batch_rows(), strict=True))
    whole = [set(order[a:b].tolist()) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    assert max(map(len, whole)) <= 12
    unbroken = sum(any(group <= set(batch.tolist()) for batch in batches) for group in whole)
    assert unbroken >= len(whole) - len(batches) + 1  # only cuts between batches break a cluster
