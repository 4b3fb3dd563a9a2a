"""streamed_loss against block_loss on scores held whole, for every objective and reduction."""

import weakref

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from umpteen.compute.streaming.explicit_gradients import PLAIN
from umpteen.compute.streaming.label_blocks import (
    COPIES,
    Fresh,
    default_memory,
    fitting_block,
    streamed_loss,
)
from umpteen.errors import LabelMismatch, UmpteenError
from umpteen.objectives import OBJECTIVES, REDUCTIONS
from umpteen.objectives.base import block_loss
from umpteen.objectives.reductions import mean_of_positives, one_of_positives, with_options
from umpteen.objectives.softmax import Softmax
from umpteen.registry import resolve
from umpteen.types import Positives

B, L, D = 7, 23, 5
VARIANTS = {  # a name of the table, with options
    **{name: (name, {}) for name in OBJECTIVES},
    "soft_top_k": ("soft_top_k", {"k": 3}),
    "soft_top_k, k of positives": ("soft_top_k", {"k": "positives"}),
    "bce, mean": ("bce", {"mean": True}),
    "prob_contrastive, hardest": ("prob_contrastive", {"n_negatives": 3}),
    "triplet, hardest positives": (
        "triplet",
        {"margin": 2.0, "n_positives": 2, "temperature": 3.0},
    ),
    "triplet": ("triplet", {"margin": 2.0, "n_negatives": 4, "temperature": 3.0}),
    "triplet, even": ("triplet", {"margin": 2.0, "n_negatives": 4, "softmax_weighted": False}),
}
DISTINCT = sorted({target: name for name, target in REDUCTIONS.items()}.values())
"""Reductions without the second names of the same functions."""
ALL = [(objective, reduction) for objective in VARIANTS for reduction in DISTINCT]
DRAWN = ("pol", "k-sample")
"""Reductions that draw: a draw in another type is another draw."""
UNDRAWN = [pair for pair in ALL if pair[1] not in DRAWN]
every_pair = pytest.mark.parametrize(("objective", "reduction"), ALL)


def in_turn(names, values, pairs=ALL):
    """Run a test with every pair and one of the values.

    Neighbouring reductions get the next value: every objective and every reduction meets each.
    """
    turns = [list(VARIANTS).index(o) + DISTINCT.index(r) for o, r in pairs]
    cases = [(*pair, values[n % len(values)]) for pair, n in zip(pairs, turns, strict=True)]
    return pytest.mark.parametrize(("objective", "reduction", names), cases)


def parts(objective, reduction):
    name, options = VARIANTS[objective]
    base = resolve(OBJECTIVES, name, kind="objective")(**options)
    return base, resolve(REDUCTIONS, reduction, kind="reduction")


def parts_that_draw_all(objective, reduction):
    """Draw every positive: draws of fewer differ between a host and a GPU."""
    base, weigh = parts(objective, reduction)
    return base, with_options(weigh, {"k": 10**6}) if reduction == "k-sample" else weigh


def make_case(seed=0, *, n_queries=B, n_labels=L, share=0.2, dtype=torch.float64):
    """Vectors, NumPy positives in no order, and ignored pairs; query 0 has no positive."""
    rng = np.random.default_rng(seed)
    relevant = rng.random((n_queries, n_labels)) < share
    relevant[0] = False
    relevant[-1, -1] = True
    pairs = rng.permutation(np.argwhere(relevant))
    ignored = np.argwhere((rng.random((n_queries, n_labels)) < 0.15) & ~relevant)
    queries = torch.from_numpy(rng.normal(size=(n_queries, D))).to(dtype).requires_grad_()
    labels = torch.from_numpy(rng.normal(size=(n_labels, D))).to(dtype).requires_grad_()
    scale = torch.tensor(1.7, dtype=dtype, requires_grad=True)
    positives = Positives(pairs[:, 0], pairs[:, 1], rng.uniform(0.1, 1.0, len(pairs)))
    return queries, labels, scale, positives, rng.permutation(ignored)


def far(case):
    """The same with every score lower by 500: there a mask of -100 would be the best score."""
    queries, labels, scale, positives, ignored = case
    high = torch.full((len(queries), 1), 20.0, dtype=queries.dtype)
    low = torch.full((len(labels), 1), -500 / (20.0 * float(scale.detach())), dtype=labels.dtype)
    queries = torch.cat([queries.detach(), high], dim=1).requires_grad_()
    labels = torch.cat([labels.detach(), low], dim=1).requires_grad_()
    return queries, labels, scale, positives, ignored


def as_tensors(positives, dtype=torch.float64):
    return Positives(
        torch.as_tensor(positives.rows),
        torch.as_tensor(positives.cols),
        torch.as_tensor(positives.targets).to(dtype),
    )


def dense(objective, reduction, queries, labels, positives, scale, ignored, forward):
    scores = scale * (queries @ labels.T)
    if ignored is not None:
        hole = torch.zeros(scores.shape, dtype=torch.bool)
        hole[ignored[:, 0], ignored[:, 1]] = True
        scores = scores.masked_fill(hole, float("-inf"))
    positives = as_tensors(positives, scores.dtype)
    loss = 0.0
    if forward > 0:
        loss = loss + forward * block_loss(objective, reduction, scores, positives)
    if forward < 1:
        back = block_loss(objective, reduction, scores.T, positives.transposed())
        loss = loss + (1 - forward) * back
    return loss


def one_way(objective, reduction, case, *, forward=1.0, seed=3, whole=False, **options):
    """Loss and gradients by queries, labels and scale: streamed, or from the whole scores."""
    queries, labels, scale, positives, ignored = case
    base, weigh = parts(objective, reduction)
    torch.manual_seed(seed)
    if whole:
        loss = dense(base, weigh, queries, labels, positives, scale, ignored, forward)
    else:
        loss = streamed_loss(
            base, weigh, queries, labels, positives,
            scale=scale, ignored=ignored, forward=forward, **options,
        )  # fmt: skip
    return loss.detach(), *torch.autograd.grad(2.5 * loss, (queries, labels, scale))


def both(objective, reduction, case, *, forward=1.0, **options):
    """What comes out streamed and from the whole scores, with the same seed."""
    return [
        one_way(objective, reduction, case, forward=forward, **options),
        one_way(objective, reduction, case, forward=forward, whole=True),
    ]


def assert_same(results, rtol=1e-10, atol=1e-12):
    for mine, theirs in zip(*results, strict=True):
        assert torch.isfinite(mine).all()
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)


@every_pair
def test_blocks_of_any_size_give_loss_and_gradients_of_the_whole(objective, reduction):
    case = make_case()
    whole = one_way(objective, reduction, case, whole=True)
    for size in (1, 4, 10, 23, 100):
        assert_same([one_way(objective, reduction, case, block_size=size), whole])


@in_turn("forward", [0.0, 0.3])
def test_labels_choosing_among_queries_stream_as_well(objective, reduction, forward):
    assert_same(both(objective, reduction, make_case(1), forward=forward, block_size=4))


@in_turn("size", [3, 6])
def test_every_label_of_every_block_can_be_a_positive(objective, reduction, size):
    queries, labels, scale, _, _ = case = make_case(2, n_queries=L)
    eye = Positives(np.arange(L), np.arange(L), np.ones(L))
    one = Positives(np.array([1]), np.array([0]), np.ones(1))
    assert_same(both(objective, reduction, (*case[:3], eye, None), block_size=size))
    base, weigh = parts(objective, reduction)
    for label in (0, size - 1, size, 2 * size - 1, L - 1):  # the edges of blocks, one at a time
        one.cols[0] = label
        loss = streamed_loss(base, weigh, queries, labels, one, scale=scale, block_size=size)
        whole = dense(base, weigh, queries, labels, one, scale, None, 1.0)
        torch.testing.assert_close(loss, whole, rtol=1e-12, atol=1e-12)


@every_pair
def test_permuting_labels_permutes_their_gradients(objective, reduction):
    queries, labels, scale, positives, ignored = case = make_case(4)
    loss, by_query, by_label, _ = one_way(objective, reduction, case, block_size=5)
    order = torch.randperm(L)
    place = torch.argsort(order).numpy()
    moved = Positives(positives.rows, place[positives.cols], positives.targets)
    filtered = np.stack([ignored[:, 0], place[ignored[:, 1]]], axis=1)
    turned = queries, labels[order].detach().requires_grad_(), scale, moved, filtered
    again, same_queries, turned_labels, _ = one_way(objective, reduction, turned, block_size=5)
    torch.testing.assert_close(again, loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(same_queries, by_query, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(turned_labels, by_label[order], rtol=1e-9, atol=1e-12)


@every_pair
def test_queries_without_positives_and_empty_batches_are_finite(objective, reduction):
    queries, labels, scale, positives, ignored = make_case(5)
    case = queries, labels, scale, positives, ignored
    by_query = one_way(objective, reduction, case, block_size=4)[1]
    assert torch.equal(by_query[0], torch.zeros(D, dtype=torch.float64))  # query 0 has none
    nobody = Positives(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    for n_labels in (L, 0):
        base, weigh = parts(objective, reduction)
        few = labels[:n_labels]
        loss = streamed_loss(base, weigh, queries, few, nobody, forward=0.5, block_size=4)
        gradient = torch.autograd.grad(loss, (queries, few))
        assert loss == 0
        assert not any(g.abs().sum() for g in gradient)


@every_pair
def test_ignored_pairs_get_no_gradient(objective, reduction):
    queries, labels, scale, positives, _ = make_case(6)
    lone = 11  # a label that nobody has and everybody ignores
    keep = positives.cols != lone
    positives = Positives(*(getattr(positives, f)[keep] for f in ("rows", "cols", "targets")))
    ignored = np.stack([np.arange(B), np.full(B, lone)], axis=1)
    case = (queries, labels, scale, positives, ignored)
    results = both(objective, reduction, case, forward=0.4, block_size=4)
    assert_same(results)
    assert torch.equal(results[0][2][lone], torch.zeros(D, dtype=torch.float64))


@in_turn("forward", [1.0, 0.4, 0.0])
def test_absent_pairs_stay_absent_among_scores_far_below_zero(objective, reduction, forward):
    case = far(make_case(16))
    assert len(case[4])
    # Numbers of 500 are right to 1e-13, and slopes that cancel are multiplied by them.
    assert_same(both(objective, reduction, case, forward=forward, block_size=4), atol=1e-9)


@in_turn("forward", [1.0, 0.4])
def test_fresh_labels_alone_get_the_gradient_they_would_get_among_all(
    objective, reduction, forward
):
    queries, labels, scale, positives, ignored = case = make_case(17)
    loss, by_query, by_label, by_scale = one_way(
        objective, reduction, case, forward=forward, whole=True
    )
    base, weigh = parts(objective, reduction)
    for rows in (np.array([0, 1, 7, 8, 15, L - 1]), np.array([9]), np.empty(0, np.int64)):
        vectors = labels.detach()[rows].clone().requires_grad_()
        torch.manual_seed(3)
        found = streamed_loss(
            base, weigh, queries, labels, positives, scale=scale, ignored=ignored,
            forward=forward, block_size=4, fresh=Fresh(rows, vectors),
        )  # fmt: skip
        ours = torch.autograd.grad(2.5 * found, (queries, vectors, scale))
        assert_same([(found.detach(), *ours), (loss, by_query, by_label[rows], by_scale)])


def test_no_gradient_of_all_labels_is_made_where_a_few_are_fresh():
    n_labels = 5003
    queries, labels, _, positives, _ = make_case(18, n_labels=n_labels, share=0.002)
    rows = np.arange(0, n_labels, 100)
    vectors = labels.detach()[rows].clone().requires_grad_()
    for forward in (1.0, 0.5):
        with Watch() as watch:
            streamed_loss(
                Softmax(), mean_of_positives, queries, labels.detach(), positives,
                forward=forward, block_size=50, fresh=Fresh(rows, vectors),
            ).backward()  # fmt: skip
        assert watch.peak < 2 * labels.nbytes  # the labels themselves are seen, once
    assert vectors.grad.abs().sum(dim=1).min() > 0


def test_tensors_and_arrays_give_the_same():
    queries, labels, scale, positives, ignored = make_case(7)
    one = streamed_loss(Softmax(), mean_of_positives, queries, labels, positives, block_size=4)
    two = streamed_loss(
        Softmax(), mean_of_positives, queries, labels, as_tensors(positives), block_size=4
    )
    assert torch.equal(one, two)
    filtered = [
        streamed_loss(Softmax(), mean_of_positives, queries, labels, positives, ignored=pairs)
        for pairs in (ignored, torch.from_numpy(ignored))
    ]
    assert torch.equal(*filtered)
    assert not torch.equal(filtered[0], one)


def test_it_composes_with_what_made_the_vectors_and_with_other_losses():
    queries, labels, _, positives, _ = make_case(8)
    head = torch.nn.Linear(D, D).double()
    gradients = []
    for streamed in (True, False):
        head.zero_grad()
        sides = head(queries), torch.nn.functional.normalize(head(labels), dim=-1)
        if streamed:
            loss = streamed_loss(
                Softmax(), mean_of_positives, *sides, positives, scale=20, block_size=6
            )
        else:
            loss = dense(Softmax(), mean_of_positives, *sides, positives, 20, None, 1.0)
        (0.3 * loss + (sides[0] ** 2).mean()).backward()
        gradients.append(head.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_only_the_gradients_that_are_asked_for_are_made():
    queries, labels, _, positives, _ = make_case(9)
    for frozen in (0, 1):
        sides = [queries.detach(), labels.detach()]
        sides[1 - frozen].requires_grad_()
        loss = streamed_loss(Softmax(), mean_of_positives, *sides, positives, block_size=6)
        loss.backward()
        assert sides[frozen].grad is None
        assert sides[1 - frozen].grad.abs().sum() > 0
    with torch.no_grad():
        loss = streamed_loss(Softmax(), mean_of_positives, queries, labels, positives)
    assert not loss.requires_grad


def test_half_precision_vectors_are_scored_in_float32_and_keep_their_type():
    queries, labels, _, positives, _ = make_case(10)
    half = queries.detach().bfloat16().requires_grad_(), labels.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = streamed_loss(Softmax(), mean_of_positives, *half, positives, scale=20, block_size=6)
    loss.backward()
    assert loss.dtype == torch.float32
    assert half[0].grad.dtype == half[1].grad.dtype == torch.bfloat16
    exact = dense(
        Softmax(), mean_of_positives, half[0].double(), half[1].double(), positives, 20, None, 1.0
    )
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=0)  # no bfloat16 product


def test_a_pair_that_is_not_there_is_refused_and_not_lost():
    queries, labels, _, positives, _ = make_case(11)
    beyond = Positives(np.array([0]), np.array([L]), np.ones(1))
    with pytest.raises(LabelMismatch, match="label row 23; rows are 0 to 22"):
        streamed_loss(Softmax(), mean_of_positives, queries, labels, beyond)
    with pytest.raises(LabelMismatch, match="query row -1"):
        streamed_loss(
            Softmax(), mean_of_positives, queries, labels, positives, ignored=np.array([[-1, 0]])
        )


class Crowded:
    """Softmax that runs out of memory on blocks above a width, as a device would."""

    def __init__(self, most, *, in_backward=False):
        self.base, self.most, self.in_backward = Softmax(), most, in_backward
        self.merge, self.loss = self.base.merge, self.base.loss

    def row_stats(self, scores, positives):
        if scores.numel() > self.most * B and scores.requires_grad >= self.in_backward:
            raise torch.OutOfMemoryError("as if")
        return self.base.row_stats(scores, positives)


@pytest.mark.parametrize("in_backward", [False, True])
def test_out_of_memory_halves_the_block_and_goes_on(in_backward, caplog):
    queries, labels, _, positives, _ = make_case(12)
    crowded = Crowded(5, in_backward=in_backward)
    gradients = []
    for objective in (crowded, Softmax()):
        torch.manual_seed(1)
        loss = streamed_loss(
            objective, one_of_positives, queries, labels, positives, block_size=20, forward=0.5
        )
        gradients.append((loss.detach(), *torch.autograd.grad(loss, (queries, labels))))
    assert "going on with 5 labels at once" in caplog.text
    assert_same(gradients)


def test_a_batch_of_which_not_one_label_fits_says_so():
    queries, labels, _, positives, _ = make_case(13)
    with pytest.raises(UmpteenError, match="7 queries and one label do not fit"):
        streamed_loss(Crowded(0), mean_of_positives, queries, labels, positives, block_size=9)


class Watch(TorchDispatchMode):
    """Counts the bytes of all tensors made inside that are alive, by storage."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak, self.largest = {}, 0, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
                self.largest = max(self.largest, tensor.numel())
        return result

    def _add(self, storage):
        key = storage._cdata
        if key in self.alive:
            return
        self.alive[key] = size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key)

    def _free(self, key):
        self.now -= self.alive.pop(key, 0)


# Reductions see pairs alone and are as large as those: one for each objective and direction.
IN_TURN = [(o, DISTINCT[n % len(DISTINCT)]) for n, o in enumerate([*VARIANTS, *VARIANTS])]


@pytest.mark.parametrize(
    ("objective", "reduction", "forward"),
    [(*pair, 1.0 if n < len(VARIANTS) else 0.5) for n, pair in enumerate(IN_TURN)],
)
def test_scores_stay_within_the_block_and_the_memory_within_its_bound(
    objective, reduction, forward
):
    n_queries, n_labels = 64, 2048
    queries, labels, _, positives, ignored = make_case(
        14, n_queries=n_queries, n_labels=n_labels, share=0.003, dtype=torch.float32
    )
    base, weigh = parts(objective, reduction)
    memory = 1 << 19
    named = forward == 1.0 and getattr(base, "summary", None) is not None
    copies = PLAIN[base.summary.function].copies if named else getattr(base, "block_copies", COPIES)
    size = fitting_block(
        n_queries, D, torch.float32, memory, copies=copies, label_copies=1 if named else 3
    )
    assert 128 <= size < n_labels / 4
    with Watch() as watch:
        loss = streamed_loss(
            base, weigh, queries, labels, positives,
            ignored=ignored[:9], forward=forward, memory_bytes=memory,
        )  # fmt: skip
        loss.backward()
    # Never (B, L): the blocks are what was promised, and beside them there are the labels.
    assert watch.largest == max(n_queries * size, n_labels * D)
    fixed = 4 * D * (2 * n_queries + n_labels) + 200 * len(positives)  # scaled queries, gradients
    assert watch.peak <= memory + fixed


def test_the_block_follows_from_the_memory():
    assert fitting_block(100, 8, torch.float32, 4 * (1000 + 24) * 640) == 640
    assert fitting_block(100, 8, torch.float64, 4 * (1000 + 24) * 640) == 320
    assert fitting_block(100, 8, torch.float32, 4 * (1000 + 24) * 50) == 50
    assert fitting_block(100, 8, torch.float32, 1) == 1
    assert default_memory(torch.device("cpu")) == 512 << 20
    assert default_memory(torch.device("cuda", 1)) == 1536 << 20


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("objective", "reduction"), [pair for pair in ALL if pair[1] != "pol"])
def test_on_a_gpu_it_equals_the_host_and_never_waits(objective, reduction):
    queries, labels, scale, positives, ignored = make_case(15)
    base, weigh = parts_that_draw_all(objective, reduction)
    results = []
    for device in ("cpu", "cuda"):
        placed = [v.detach().to(device).requires_grad_() for v in (queries, labels, scale)]
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("error")
        try:
            loss = streamed_loss(
                base, weigh, *placed[:2], positives,
                scale=placed[2], ignored=ignored, forward=0.3, block_size=4,
            )  # fmt: skip
            found = torch.autograd.grad(loss, placed)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        results.append([value.cpu() for value in (loss.detach(), *found)])
    assert_same(results)
