"""Ranks that compute on a GPU: one through nccl, and two that share a GPU and exchange by gloo.

Compared with a run on the CPU, whose batches are drawn as those of ranks are. The tolerance is for
the rounding of products on a GPU, which later steps amplify.
"""

import shutil

import pytest
import torch
from rank_children import on_ranks, said
from small_runs import SETTINGS, steps

from umpteen.compute.distributed.gradient_sums import sum_gradients_
from umpteen.compute.distributed.sharding import start_ranks
from umpteen.data.formats import load_dataset
from umpteen.training.run import train

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
PLAIN = (
    *SETTINGS,
    "encoder.options={dropout=0.0}",
    "model.dropout=0.0",
    "train.precision=fp32",
    "train.epochs=2",
)
SCOPES = ("batch", "all", "bank")


# -- on every rank ----------------------------------------------------------------------------


def fit(ranks, folder, name, device="cuda"):
    data = load_dataset(folder / "data")
    for scope in SCOPES:
        changes = (*PLAIN, f"pool.scope={scope}")
        out = folder / f"{scope}-{name}"
        train(data, out=out, overrides=changes, device=device, ranks=ranks)


def two_on_one_gpu(ranks, folder):
    torch.cuda.set_device(0)  # the group is gloo's, which takes tensors of both devices
    own = torch.full((3, 2), float(ranks.rank + 1), device="cuda")
    assert ranks.sum_(own.clone()).tolist() == [[3.0, 3.0]] * 3
    assert ranks.stack(own)[:, 0, 0].tolist() == [1.0, 2.0]
    fit(ranks, folder, "two")


def one_through_nccl(ranks, folder):
    fit(ranks, folder, "one", "cpu")
    forced = start_ranks(torch.device("cuda"), forced=True)
    assert torch.distributed.get_backend_config() == "cpu:gloo,cuda:nccl"
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float64):
        own = torch.arange(6, dtype=dtype, device="cuda").view(3, 2)
        for found in (forced.sum_(own.clone()), forced.stack(own)[0], forced.from_first(own)):
            assert torch.equal(found, own)
    table = torch.nn.Embedding(5, 2, sparse=True, device="cuda")
    table(torch.tensor([1, 3, 1], device="cuda")).sum().backward()
    expected = table.weight.grad.to_dense()
    sum_gradients_([table.weight], forced)
    assert torch.equal(table.weight.grad.to_dense(), expected)
    fit(forced, folder, "nccl")
    forced.close()


# -- what they left ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tiny_data_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("on-gpu")
    shutil.copytree(tiny_data_folder, folder / "data")
    for function, world in (("one_through_nccl", 1), ("two_on_one_gpu", 2)):
        codes = on_ranks(__file__, function, world, folder)
        assert codes == [0] * world, said(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("how", ["nccl", "two"])
@pytest.mark.parametrize("scope", SCOPES)
def test_ranks_on_a_gpu_come_to_what_one_comes_to(scope, how, runs):
    ours, theirs = steps(runs / f"{scope}-{how}"), steps(runs / f"{scope}-one")
    assert len(ours) == len(theirs) >= 4
    found, expected = [[line["loss"] for line in lines] for lines in (ours, theirs)]
    assert found[0] == pytest.approx(expected[0], rel=1e-3)
    assert found == pytest.approx(expected, rel=2e-2)
