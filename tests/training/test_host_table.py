"""A table in host memory comes to the same bits as one on the device, whatever rows steps share."""

from itertools import product

import numpy as np
import pytest
import torch
from small_runs import SHARD, checkpoints, fit, outcome, stop_at

from umpteen.data.pool import Pool
from umpteen.errors import ConfigError
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.model import Model, place_model
from umpteen.training.batch import Batch
from umpteen.training.host_table import HostTable
from umpteen.training.row_adamw import RowAdamW
from umpteen.types import Positives, Ragged

STORAGES = list(product(("fp32", "bf16"), ("fp32", "int8")))
every_storage = pytest.mark.parametrize(("table", "moments"), STORAGES)
L, D = 30, 5
POOLS = {
    "all shared": [np.arange(L)] * 6,
    "none shared": [np.arange(5) + 5 * (step % 6) for step in range(8)],
    "some shared": [np.random.default_rng(s).permutation(L)[: 1 + 4 * s] for s in range(7)],
    "back after one": [np.array([1, 2]), np.array([3]), np.array([2, 1]), np.array([3, 2])] * 2,
    "nothing in between": [np.array([4, 2]), np.array([], np.int64), np.array([2, 4])],
    "one step": [np.array([7])],
}


def make_model(table, device="cpu", *, on_host):
    torch.manual_seed(0)
    model = Model(
        BagEncoder(torch.randn(3, 4)), heads=("classifier",), dim=D, n_labels=L, label_storage=table
    )
    torch.nn.init.normal_(model.label_vectors)
    return place_model(model, torch.device(device), labels_on_host=on_host)


def batch_of(labels):
    nothing = Ragged(np.zeros(0, np.int64), np.zeros(1, np.int64))
    positives = Positives(*(np.zeros(0, np.int64),) * 2, np.zeros(0, np.float32))
    pool = Pool(labels, len(labels), positives, np.zeros((0, 2), np.int64))
    return Batch(np.zeros(0, np.int64), nothing, pool)


def loss_of(model, labels, step):
    """Gradients that depend on the vectors, so that a stale row would show."""
    rows = torch.as_tensor(labels).to(model.log_scales.device)
    vectors = model.label_rows(rows)
    target = torch.randn(L, D, generator=torch.Generator().manual_seed(step)).to(vectors.device)
    return ((vectors - target[rows]) ** 2).sum() * (0.1 + step)


def descend(pools, table, moments, *, on_host, device="cpu"):
    model = make_model(table, device, on_host=on_host)
    options = {"lr": 0.1, "weight_decay": 0.05, "moments": moments, "unique_rows": True, "seed": 3}
    optimizer = RowAdamW([model.label_vectors], **options)
    batches = map(batch_of, pools)
    host = HostTable(model, optimizer) if on_host else None
    for step, batch in enumerate(batches if host is None else host.ahead(batches)):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        loss_of(model, batch.pool.labels, step).backward()
        optimizer.step()
        optimizer.zero_grad()
        if host is not None:
            host.leave()
    return model, optimizer


def assert_same_bits(first, second):
    one, other = (opt.table(model.label_vectors).parts() for model, opt in (first, second))
    assert one.keys() == other.keys()
    for name, part in one.items():
        assert torch.equal(part.cpu(), other[name].cpu()), name
    steps = [opt.state[model.label_vectors]["step"] for model, opt in (first, second)]
    assert steps[0] == steps[1]


@every_storage
@pytest.mark.parametrize("pools", POOLS.values(), ids=POOLS)
def test_every_step_sees_and_leaves_the_same_bits(pools, table, moments):
    there = descend(pools, table, moments, on_host=True)
    assert_same_bits(there, descend(pools, table, moments, on_host=False))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_storage
@pytest.mark.parametrize("pools", POOLS.values(), ids=POOLS)
def test_on_a_gpu_too(pools, table, moments):
    there = descend(pools * 5, table, moments, on_host=True, device="cuda")
    assert there[0].label_vectors.device.type == "cpu"
    assert_same_bits(there, descend(pools * 5, table, moments, on_host=False, device="cuda"))


def test_a_step_without_a_gradient_leaves_the_rows_alone():
    model = make_model("fp32", on_host=True)
    before = model.label_vectors.detach().clone()
    optimizer = RowAdamW([model.label_vectors])
    host = HostTable(model, optimizer)
    for _ in host.ahead(map(batch_of, POOLS["some shared"])):
        host.leave()
    assert torch.equal(model.label_vectors, before)
    assert optimizer.state[model.label_vectors]["step"] == 0


def test_a_failing_write_is_not_lost(monkeypatch):
    model = make_model("fp32", on_host=True)
    host = HostTable(model, RowAdamW([model.label_vectors]))
    monkeypatch.setattr(host, "_write", lambda *_: 1 / 0)

    def take_steps():
        for step, batch in enumerate(host.ahead(map(batch_of, POOLS["all shared"]))):
            loss_of(model, batch.pool.labels, step).backward()
            host.leave()

    with pytest.raises(ZeroDivisionError):
        take_steps()


def test_label_vectors_stay_on_the_host_and_all_else_moves():
    model = make_model("fp32", "meta", on_host=True)
    places = {name: p.device.type for name, p in model.named_parameters()}
    assert places.pop("label_vectors") == "cpu"
    assert set(places.values()) == {"meta"}
    assert next(model.parameters()).device.type == "meta"  # what is asked for the model's device


# -- whole runs -------------------------------------------------------------------------------

RUNS = {
    "both heads": (),
    "small": ("train.label_storage=bf16", "train.label_moments=int8"),
    "classifier": ("model.heads=['classifier']", "model.label_dropout=0.2"),
    "bank": ("pool.scope=bank", "loss.bce=0.2", "pool.extra_positives=2"),
    "frozen": ("train.frozen=true", "loss.dual_share=0.0"),
}


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_a_run_comes_to_the_same_bytes_and_resumes(changes, tiny_data, tmp_path):
    changes = ("train.epochs=3", "train.checkpoint_seconds=0", *changes)
    fit(tiny_data, tmp_path / "device", *changes)
    fit(tiny_data, tmp_path / "host", *changes, "train.label_device=host")
    assert outcome(tmp_path / "host") == outcome(tmp_path / "device")
    stop_at(4, tiny_data, tmp_path / "run", *changes, "train.label_device=host")
    fit(tiny_data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "device")
    files = [checkpoints(tmp_path / run)[-1] / SHARD for run in ("host", "device")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "changes",
    [("pool.scope=all",), ("model.heads=['dual']",), ("model.label_parametrization=text",)],
)
def test_what_needs_the_table_on_the_device_is_refused(changes, tiny_data, tmp_path):
    with pytest.raises(ConfigError, match="train.label_device must be device unless"):
        fit(tiny_data, tmp_path / "run", *changes, "train.label_device=host")
