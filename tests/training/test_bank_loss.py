"""The dual loss over all labels with remembered vectors: values, gradients, memory."""

import numpy as np
import pytest
import torch
from small_runs import SHARD, checkpoints, fit, stop_at
from test_all_labels import gradients, model_of, token_store

from umpteen.config.loading import load_config
from umpteen.data.pool import AllLabels, PoolBuilder
from umpteen.objectives import OBJECTIVES
from umpteen.objectives.base import block_loss
from umpteen.training.all_labels import AllLabelLoss
from umpteen.training.bank_loss import BankLoss
from umpteen.training.batch import BatchMaker
from umpteen.training.embedding_bank import EmbeddingBank
from umpteen.training.factories import build_losses
from umpteen.types import Positives

ROWS = np.array([0, 2, 5, 7, 11])
FILTERS = np.array([[0, 3], [2, 5], [2, 6]])


class Setting:
    """A batch of five queries with a pool that is some of the labels, and a bank that is fresh."""

    def __init__(self, data, heads=("dual",), objective="decoupled_softmax", positives=2):
        self.targets = data["train"].filtered_targets()
        self.queries = token_store(len(data["train"]), 2)
        self.labels = token_store(self.targets.shape[1], 3)
        changes = [f"loss.dual={objective}", "loss.dual_forward=0.7", "loss.bce=0.3"]
        self.losses = build_losses(load_config("unidec", changes).loss)
        drawn = PoolBuilder(
            self.targets, FILTERS, positives_per_query=positives, negatives_per_query=2
        )
        everything = AllLabels(self.targets, FILTERS)
        maker = BatchMaker(
            self.queries, self.labels, drawn, seed=1, encode_labels=True, everything=everything
        )
        maker.negatives = np.random.default_rng(5).integers(
            0, self.targets.shape[1], (len(self.queries), 4)
        )
        self.batch = maker.make(ROWS, 0)
        self.model = model_of(heads, self.targets.shape[1])
        self.bank = EmbeddingBank()
        self.bank.fill(self.vectors().detach().clone())
        self.loss_of = BankLoss(self.losses, self.labels, self.bank, "fp32", memory_bytes=10_000)

    def vectors(self):
        rows = np.arange(self.targets.shape[1])
        return self.model.dual(self.model.encode(self.labels.take(rows)))

    def by_hand(self, labels):
        """The dual loss in both directions from label vectors (L, D), scores held whole."""
        queries = self.model.dual(self.model.encode(self.queries.take(ROWS)))
        scores = queries @ labels.T * self.model.log_scales[0].exp()
        everyone = AllLabels(self.targets, FILTERS).build(ROWS, np.random.default_rng(0))
        for query, label in everyone.ignored.tolist():
            scores = scores.index_put(
                (torch.tensor([query]), torch.tensor([label])),
                torch.tensor(float("-inf"), dtype=scores.dtype),
            )
        given = Positives(*(torch.as_tensor(part) for part in (
            everyone.positives.rows, everyone.positives.cols,
            everyone.positives.targets.astype(np.float64),
        )))  # fmt: skip
        one = block_loss(self.losses.dual, self.losses.reduction, scores, given)
        other = block_loss(self.losses.dual, self.losses.reduction, scores.T, given.transposed())
        return 0.7 * one + 0.3 * other


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_with_a_fresh_bank_the_value_is_that_of_all_labels(tiny_data, objective):
    setting = Setting(tiny_data, objective=objective)
    pool = setting.batch.pool
    assert pool.n_text < setting.targets.shape[1]
    loss = setting.loss_of(setting.model, setting.batch, 0)
    everyone = AllLabels(setting.targets, FILTERS)
    maker = BatchMaker(setting.queries, setting.labels, everyone, seed=1, encode_labels=False)
    all_labels = AllLabelLoss(
        setting.losses, setting.labels, "fp32", chunk_tokens=40, memory_bytes=10_000
    )
    expected = all_labels(setting.model, maker.make(ROWS, 0), 0)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_gradients_go_through_queries_and_fresh_rows_alone(tiny_data, objective):
    """By hand: all labels, but remembered ones cut off from the model."""
    setting = Setting(tiny_data, objective=objective)
    fresh = setting.vectors()
    outside = np.ones(len(fresh), bool)
    outside[setting.batch.pool.labels] = False
    assert outside.any()
    fresh = torch.where(torch.from_numpy(outside)[:, None], fresh.detach(), fresh)
    expected = setting.by_hand(fresh)
    expected.backward()
    theirs = {name: value.clone() for name, value in gradients(setting.model).items()}
    setting.model.zero_grad()
    loss = setting.loss_of(setting.model, setting.batch, 0)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    ours = gradients(setting.model)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-11, msg=name)


def test_remembered_vectors_are_those_of_the_last_time(tiny_data):
    setting = Setting(tiny_data)
    before = setting.bank.vectors.clone()
    place = setting.bank.vectors.data_ptr()
    with torch.no_grad():
        for weights in setting.model.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    setting.loss_of(setting.model, setting.batch, 0).backward()
    after = setting.bank.vectors
    assert after.data_ptr() == place  # no copy
    assert not after.requires_grad
    pool = setting.batch.pool.labels
    rest = np.setdiff1d(np.arange(len(after)), pool)
    torch.testing.assert_close(after[pool], setting.vectors()[pool].detach())
    assert torch.equal(after[rest], before[rest])
    stale = setting.loss_of(setting.model, setting.batch, 0).item()
    setting.bank.fill(setting.vectors())
    assert setting.loss_of(setting.model, setting.batch, 0).item() != pytest.approx(stale)


def test_with_two_heads_the_classifier_learns_from_the_pool(tiny_data):
    setting = Setting(tiny_data, heads=("dual", "classifier"))
    setting.loss_of(setting.model, setting.batch, 0).backward()
    touched = setting.model.label_vectors.grad.coalesce().indices()[0]
    assert touched.tolist() == sorted(setting.batch.pool.labels.tolist())


def test_an_empty_bank_is_filled_by_itself(tiny_data):
    setting = Setting(tiny_data)
    expected = setting.loss_of(setting.model, setting.batch, 0).item()
    setting.bank.vectors = None
    setting.model.train()
    assert setting.loss_of(setting.model, setting.batch, 0).item() == pytest.approx(expected, 1e-5)
    assert setting.model.training


def test_the_bank_is_part_of_the_checkpoint_and_damage_is_noticed(tiny_data, tmp_path):
    run = tmp_path / "run"
    stop_at(5, tiny_data, run, "pool.scope=bank")
    newest = checkpoints(run)[-1] / SHARD
    damaged = bytearray(newest.read_bytes())
    damaged[-1] ^= 1
    newest.write_bytes(damaged)
    fit(tiny_data, run, resume=True)
    fit(tiny_data, tmp_path / "whole", "pool.scope=bank", "train.checkpoint_seconds=0")
    from small_runs import outcome

    assert outcome(run) == outcome(tmp_path / "whole")
