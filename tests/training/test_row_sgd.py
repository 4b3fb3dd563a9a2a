"""SGD on the rows of a table, against torch.optim.SGD and the expression of Renee's updates."""

import copy

import numpy as np
import pytest
import torch
from small_runs import checkpoints, fit, outcome
from test_all_labels import model_of, token_store

from umpteen.config.loading import load_config
from umpteen.data.pool import AllLabels
from umpteen.errors import ConfigError
from umpteen.training.all_labels import AllLabelLoss
from umpteen.training.batch import BatchMaker
from umpteen.training.factories import build_losses
from umpteen.training.optim import Optimizers
from umpteen.training.row_sgd import RowSGD


def sparse(rows, values, n):
    return torch.sparse_coo_tensor(torch.tensor(rows).unsqueeze(0), values, (n, values.shape[1]))


def test_rows_touched_at_every_step_move_as_by_torchs_sgd():
    torch.manual_seed(0)
    mine = torch.nn.Parameter(torch.randn(7, 3, dtype=torch.float64))
    theirs = torch.nn.Parameter(mine.detach().clone())
    ours = RowSGD([mine], lr=0.1, momentum=0.9, weight_decay=0.02, scale=4.0)
    plain = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, weight_decay=0.02)
    for _ in range(6):
        gradient = torch.randn(7, 3, dtype=torch.float64)
        mine.grad, theirs.grad = gradient.clone(), 4.0 * gradient
        ours.step(), plain.step()
        torch.testing.assert_close(mine, theirs, rtol=1e-13, atol=1e-14)


def test_momentum_of_a_skipped_row_fades_by_the_steps_that_passed():
    table = torch.nn.Parameter(torch.zeros(4, 2, dtype=torch.float64))
    sgd = RowSGD([table], lr=1.0, momentum=0.5)
    for rows in ([1, 3], [3], [3], [1]):
        table.grad = sparse(rows, torch.ones(len(rows), 2, dtype=torch.float64), 4)
        sgd.step()
    # Row 1: momentum 1 at step 1, 0.5^3 + 1 at step 4.
    assert table[1].tolist() == pytest.approx([-(1 + 1.125)] * 2)
    assert table[3].tolist() == pytest.approx([-(1 + 1.5 + 1.75)] * 2)
    assert table[[0, 2]].abs().sum() == 0


def test_a_restored_state_goes_on_the_same():
    torch.manual_seed(1)
    table = torch.nn.Parameter(torch.randn(5, 2))
    sgd = RowSGD([table], lr=0.1, weight_decay=0.1)
    for _ in range(2):
        table.grad = torch.randn(5, 2)
        sgd.step()
    twin = torch.nn.Parameter(table.detach().clone())
    other = RowSGD([twin], lr=0.1, weight_decay=0.1)
    other.load_state_dict(copy.deepcopy(sgd.state_dict()))
    for _ in range(2):
        table.grad = torch.randn(5, 2)
        twin.grad = table.grad.clone()
        sgd.step(), other.step()
    assert torch.equal(table, twin)
    assert other.state[twin]["touched"].dtype == torch.int32


def test_label_vectors_move_as_in_renee(tiny_data):
    """W <- W - lr (mu M + sum over queries of (sigmoid(W x) - y) x^T + decay W), by hand."""
    data = tiny_data["train"]
    targets = data.filtered_targets()
    queries, labels = token_store(len(data), 2), token_store(targets.shape[1], 3)
    model = model_of(("classifier",), targets.shape[1])
    config = load_config("renee")
    pools = AllLabels(targets, np.empty((0, 2), np.int64))
    rows = np.arange(5)
    batch = BatchMaker(queries, labels, pools, seed=0, encode_labels=False).make(rows, 0)
    optimizers = Optimizers(
        model,
        lr_encoder=0.0,
        lr_heads=0.0,
        lr_labels=0.05,
        weight_decay=0.0,
        label_optimizer="sgd",
        label_weight_decay=1e-4,
        batch_size=5,
    )
    loss_of = AllLabelLoss(
        build_losses(config.loss), labels, "fp32", chunk_tokens=64, memory_bytes=None,
        label_updates=optimizers.update_labels,
    )  # fmt: skip
    y = torch.from_numpy(targets[rows].toarray()).double()
    counted = (y.sum(dim=1, keepdim=True) > 0).double()
    with torch.no_grad():
        x = model.classifier(model.encode(queries.take(rows)))
        expected, momentum = model.label_vectors.clone(), 0.0
        for _ in range(3):
            slopes = (torch.sigmoid(x @ expected.T) - y) * counted * 5 / counted.sum()
            momentum = 0.9 * momentum + slopes.T @ x + 1e-4 * expected
            expected = expected - 0.05 * momentum
    for _ in range(3):
        optimizers.set_rates(1.0)
        loss_of(model, batch, 0).backward()
        optimizers.step(1.0, clip_norm=0.0)
    torch.testing.assert_close(model.label_vectors.detach(), expected, rtol=1e-9, atol=1e-12)


SGD = ("train.label_optimizer=sgd", "train.lr_labels=0.01", "train.epochs=2")


def test_a_run_with_sgd_resumes_to_the_same(tiny_data, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fit(tiny_data, whole, *SGD, "train.checkpoint_seconds=0")
    fit(tiny_data, cut, *SGD, "train.checkpoint_seconds=0")
    newest = checkpoints(cut)[-1]
    for file in newest.iterdir():
        file.write_bytes(b"")  # damaged: the one before it is taken
    fit(tiny_data, cut, resume=True)
    assert outcome(cut)["steps"] == outcome(whole)["steps"]
    assert outcome(cut)["files"] == outcome(whole)["files"]


def test_sgd_is_for_plain_tables():
    with pytest.raises(ConfigError, match="label_optimizer must be adamw unless"):
        load_config("unidec", ["train.label_optimizer=sgd", "train.label_moments=int8"])
