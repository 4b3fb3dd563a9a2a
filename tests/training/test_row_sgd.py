"""SGD on the rows of a table, against torch.optim.SGD and the expression of Renee's updates."""

import copy

import numpy as np
import pytest
import torch
from small_runs import checkpoints, fit, outcome
from test_all_labels import model_of, token_store

from umpteen.config.loading import load_config
from umpteen.data.pool import AllLabels
from umpteen.data.tokens import tokenize
from umpteen.errors import ConfigError
from umpteen.model.storage import load_model
from umpteen.run_folder import RunFolder
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


def test_a_run_moves_label_vectors_by_the_sum_over_its_batch(tiny_data, tmp_path):
    """Three steps on all 60 texts: rates 3/4, 1/4 and 0 of the first, a momentum of 0.9."""
    n = len(tiny_data["train"])
    once = (
        "model.heads=['classifier']", "model.label_init=random", "model.dropout=0",
        "encoder.options={dropout=0.0}", "pool.scope=all", "loss.classifier=bce",
        "loss.reduction=pal", "loss.classifier_forward=1", "batches.clustered=false",
        f"batches.size={n}", "train.epochs=3", "train.warmup=0", "train.lr_encoder=0",
        "train.lr_heads=0", "train.label_optimizer=sgd", "train.label_weight_decay=0.1",
        "validation.share=0",
    )  # fmt: skip
    tables = []
    for name, rate in (("still", 0.0), ("moved", 0.05)):
        fit(tiny_data, tmp_path / name, *once, f"train.lr_labels={rate}")
        model, tokenizer, _ = load_model(RunFolder(tmp_path / name).model("last"))
        tables.append(model.label_vectors.detach().double())
    texts = tokenize(
        tiny_data["train"].texts(), tokenizer, max_tokens=64, folder=tmp_path / "tokens"
    )
    with torch.no_grad():
        x = model.classifier(model.encode(texts.take(np.arange(n)))).double()
    y = torch.from_numpy(tiny_data["train"].filtered_targets().toarray()).double()
    counted = torch.ones_like(y)  # a filter pair counts neither way
    counted[tuple(tiny_data["train"].filters.T)] = 0
    expected, momentum = tables[0], 0.0
    for factor in (0.75, 0.25, 0.0):
        slopes = ((torch.sigmoid(x @ expected.T) - y) * counted).T @ x
        momentum = 0.9 * momentum + slopes + 0.1 * expected
        expected = expected - 0.05 * factor * momentum
    assert (expected - tables[0]).abs().max() > 0.01
    torch.testing.assert_close(tables[1], expected, rtol=1e-4, atol=1e-6)


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
