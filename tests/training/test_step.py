"""batch_loss against the formulas of UniDEC, written out densely from tokens to the scalar."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.data.dataset import drop_pairs
from umpteen.data.pool import Pool, PoolBuilder
from umpteen.data.tokens import TokenStore
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.model import Model
from umpteen.objectives.bce import BinaryCrossEntropy
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.reductions import mean_of_positives, sum_of_positives
from umpteen.objectives.softmax import Softmax
from umpteen.training.batch import BatchMaker, join
from umpteen.training.step import Losses, batch_loss
from umpteen.types import Positives

N, L, V, D = 13, 17, 31, 4
TAU, TAU_C = 0.2, 0.5


def random_store(n, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n)
    ids = rng.integers(0, V, lengths.sum()).astype(np.uint16)
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]))


@pytest.fixture
def world():
    """Targets with weights, filters, tokens, and a batch with filters, extras and mined labels."""
    rng = np.random.default_rng(4)
    relevant = rng.random((N, L)) < 0.25
    filtered = (rng.random((N, L)) < 0.15) & (np.arange(N)[:, None] > 0)
    relevant[3] = False  # a query without positives
    weights = np.where(relevant, rng.uniform(0.2, 1.0, (N, L)), 0).astype(np.float32)
    filters = np.argwhere(filtered)
    targets = drop_pairs(sp.csr_matrix(weights), filters)
    pools = PoolBuilder(
        targets, filters, positives_per_query=1, negatives_per_query=2, extra_positives=2
    )
    queries, labels = random_store(N, 1), random_store(L, 2)
    maker = BatchMaker(queries, labels, pools, seed=7, encode_labels=True)
    maker.negatives = rng.integers(-1, L, (N, 5)).astype(np.int32)
    batch = maker.make(np.array([3, 11, 0, 5, 8, 2]), step=3)
    assert batch.pool.n_text < len(batch.pool.labels)
    assert len(batch.pool.ignored)
    return {
        "targets": torch.from_numpy(targets.toarray()).double(),
        "filtered": torch.from_numpy(filtered),
        "queries": queries,
        "labels": labels,
        "batch": batch,
    }


def make_model(heads=("dual", "classifier"), dtype=torch.float64):
    torch.manual_seed(1)
    model = Model(
        BagEncoder(torch.randn(V, 6), hidden=5),
        heads=heads,
        dim=D,
        n_labels=L,
        dual_temperature=TAU,
        classifier_temperature=TAU_C,
    )
    with torch.no_grad():
        for parameter in model.parameters():  # nothing may hide behind a zero start
            if parameter is not model.log_scales:
                parameter.copy_(torch.randn(parameter.shape) * 0.5)
    model.to(dtype)
    with torch.no_grad():
        model.log_scales.copy_(-torch.tensor([TAU, TAU_C], dtype=torch.float64).log())
    return model.eval()


def make_losses(
    dual=DecoupledSoftmax, classifier=DecoupledSoftmax, mean=True, mean_c=None, **weights
):
    own = mean if mean_c is None else mean_c
    return Losses(
        dual=dual(),
        classifier=classifier(),
        reduction=mean_of_positives if mean else sum_of_positives,
        classifier_reduction=mean_of_positives if own else sum_of_positives,
        bce_objective=BinaryCrossEntropy(),
        bce_reduction=sum_of_positives,
        **weights,
    )


# From here on the formulas, with none of the package's parts but the weights.


def encode(model, store, row):
    e = model.encoder
    tokens = store.ids[store.offsets[row] : store.offsets[row + 1]].astype(np.int64)
    weights = torch.exp(e.weights[tokens, 0])
    m = (weights[:, None] * e.table[tokens]).sum(0) / weights.sum()
    inner = torch.clamp(e.inner.weight @ m + e.inner.bias, min=0)
    return m + e.outer.weight @ inner + e.outer.bias


def dual_vector(model, h):
    z = torch.tanh(model.dual_head.linear.weight @ h + model.dual_head.linear.bias)
    return z / z.norm()


def classifier_vector(model, h):
    return model.classifier_head.linear.weight @ h + model.classifier_head.linear.bias


def one_way(kind, mean, scores, targets, filtered):
    """The mean over rows that have a positive; scores, targets and filtered are (rows, columns)."""
    total, counted = 0.0, 0
    for s, t, out in zip(scores, targets, filtered, strict=True):
        positives = [j for j in range(len(t)) if t[j] > 0]
        negatives = [j for j in range(len(t)) if t[j] == 0 and not out[j]]
        if not positives:
            continue
        counted += 1
        scale = sum(t[j] for j in positives) if mean else 1.0
        below = sum((torch.exp(s[j]) for j in negatives), torch.zeros(()).double())
        everything = below + sum(torch.exp(s[j]) for j in positives)
        for p in positives:
            if kind is Softmax:
                total = total - t[p] / scale * torch.log(torch.exp(s[p]) / everything)
            elif kind is DecoupledSoftmax:
                share = torch.exp(s[p]) / (torch.exp(s[p]) + below)
                total = total - t[p] / scale * torch.log(share)
            else:
                chance = torch.sigmoid(s[p])
                term = t[p] * torch.log(chance) + (1 - t[p]) * torch.log(1 - chance)
                total = total - term / scale
        if kind is BinaryCrossEntropy:
            total = total - sum(torch.log(1 - torch.sigmoid(s[j])) for j in negatives)
    return total / counted


def both_ways(kind, mean, forward, scores, targets, filtered):
    there = one_way(kind, mean, scores, targets, filtered)
    back = one_way(kind, mean, scores.T, targets.T, filtered.T)
    return forward * there + (1 - forward) * back


def dense_loss(model, world, *, dual, classifier, mean, mean_c, share, forward_d, forward_c, bce):
    batch = world["batch"]
    rows, pool, n_text = batch.queries, batch.pool.labels, batch.pool.n_text
    targets, filtered = world["targets"][rows][:, pool], world["filtered"][rows][:, pool]
    h = [encode(model, world["queries"], row) for row in rows]
    loss_d = loss_c = 0.0
    if "dual" in model.heads:
        queries = torch.stack([dual_vector(model, x) for x in h])
        labels = [dual_vector(model, encode(model, world["labels"], r)) for r in pool[:n_text]]
        scores = queries @ torch.stack(labels).T / TAU
        loss_d = both_ways(dual, mean, forward_d, scores, targets[:, :n_text], filtered[:, :n_text])
    if "classifier" in model.heads:
        queries = torch.stack([classifier_vector(model, x) for x in h])
        scores = queries @ model.label_vectors[pool].T / TAU_C
        own = mean if mean_c is None else mean_c
        loss_c = both_ways(classifier, own, forward_c, scores, targets, filtered)
        loss_c = loss_c + bce * one_way(BinaryCrossEntropy, False, scores, targets, filtered)
    if len(model.heads) == 1:
        return loss_d + loss_c
    return share * loss_d + (1 - share) * loss_c


def gradients(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {
        name: p.grad.to_dense() if p.grad.is_sparse else p.grad
        for name, p in model.named_parameters()
        if p.grad is not None
    }


CASES = [
    {},
    {"dual": Softmax, "share": 0.3},
    {"classifier": Softmax, "mean": False, "forward_d": 0.8},
    {"dual": BinaryCrossEntropy, "classifier": BinaryCrossEntropy, "forward_c": 0.25},
    {"classifier": BinaryCrossEntropy, "mean_c": False, "forward_c": 1.0},
    {"classifier": Softmax, "mean": False, "mean_c": True},
    {"bce": 0.4, "forward_c": 0.7},
    {"forward_d": 1.0, "forward_c": 0.0},
]
PLAIN = {
    "dual": DecoupledSoftmax,
    "classifier": DecoupledSoftmax,
    "mean": True,
    "mean_c": None,
    "share": 0.5,
    "forward_d": 0.5,
    "forward_c": 0.5,
    "bce": 0.0,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("heads", [("dual", "classifier"), ("dual",), ("classifier",)])
def test_loss_and_gradients_equal_the_dense_formulas(world, case, heads):
    case = {**PLAIN, **case}
    model = make_model(heads)
    losses = make_losses(
        case["dual"],
        case["classifier"],
        case["mean"],
        case["mean_c"],
        dual_share=case["share"],
        dual_forward=case["forward_d"],
        classifier_forward=case["forward_c"],
        bce=case["bce"],
    )
    loss = batch_loss(model, world["batch"], losses, precision="fp32")
    expected = dense_loss(model, world, **case)
    assert loss.dtype == torch.float64
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    ours = gradients(model, loss)
    theirs = gradients(model, dense_loss(model, world, **case))
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize("kind", [Softmax, DecoupledSoftmax])
def test_ignored_pairs_stay_absent_among_scores_far_below_zero(world, kind):
    """Every score is lower by 500: there a mask of -100 would be the best score."""
    model = make_model(("classifier",))
    with torch.no_grad():
        model.classifier_head.linear.weight[0] = 0
        model.classifier_head.linear.bias[0] = 1
        model.label_vectors[:, 0] = -500 * TAU_C
    case = {**PLAIN, "classifier": kind, "bce": 0.4}
    losses = make_losses(classifier=kind, bce=0.4)
    loss = batch_loss(model, world["batch"], losses, precision="fp32")
    torch.testing.assert_close(loss, dense_loss(model, world, **case), rtol=1e-10, atol=1e-9)
    ours = gradients(model, loss)
    theirs = gradients(model, dense_loss(model, world, **case))
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-8, atol=1e-8, msg=name)


def test_only_the_pools_rows_get_gradients(world):
    model = make_model()
    batch_loss(model, world["batch"], make_losses(), precision="fp32").backward()
    assert model.label_vectors.grad.is_sparse
    rows = model.label_vectors.grad.coalesce().indices()[0]
    assert sorted(rows.tolist()) == sorted(world["batch"].pool.labels.tolist())
    assert model.encoder.table.grad.is_sparse


def test_a_share_of_one_or_zero_leaves_the_other_head_alone(world):
    model = make_model()
    batch_loss(model, world["batch"], make_losses(dual_share=1.0), precision="fp32").backward()
    assert model.label_vectors.grad is None
    model.zero_grad(set_to_none=True)
    batch_loss(model, world["batch"], make_losses(dual_share=0.0), precision="fp32").backward()
    assert model.dual_head.linear.weight.grad is None


@pytest.mark.parametrize("heads", [("dual", "classifier"), ("dual",), ("classifier",)])
@pytest.mark.parametrize("n_labels", [0, 3])
def test_a_batch_without_positives_costs_nothing_and_breaks_nothing(world, heads, n_labels):
    labels = np.arange(n_labels)
    nobody = np.zeros(0, np.int64)
    everything = np.array([(i, j) for i in range(6) for j in range(n_labels)], np.int64)
    pool = Pool(
        labels,
        n_labels,
        Positives(nobody, nobody, np.zeros(0, np.float32)),
        everything.reshape(-1, 2),
    )
    batch = world["batch"]
    tokens = join(world["queries"].take(batch.queries), world["labels"].take(labels))
    batch = dataclasses.replace(batch, pool=pool, tokens=tokens)
    model = make_model(heads)
    loss = batch_loss(model, batch, make_losses(bce=0.5), precision="fp32")
    assert loss == 0
    for name, gradient in gradients(model, loss).items():
        assert torch.equal(gradient, torch.zeros_like(gradient)), name


def test_bfloat16_is_near_float32(world):
    model = make_model(dtype=torch.float32)
    exact = batch_loss(model, world["batch"], make_losses(), precision="fp32")
    rough = batch_loss(model, world["batch"], make_losses(), precision="bf16")
    assert rough.dtype == torch.float32
    # The encoder alone is in bfloat16 (8 bits): its vectors are off by some 2^-8 of their length.
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0)
