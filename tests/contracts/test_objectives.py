"""The laws of every row of OBJECTIVES x REDUCTIONS, in float64 unless a law is about float32."""

import math

import numpy as np
import pytest
import torch

from umpteen.objectives import OBJECTIVES, REDUCTIONS
from umpteen.objectives.base import block_loss
from umpteen.registry import resolve
from umpteen.types import Positives

NOTHING = float("-inf")
VARIANTS = {  # a name of the table, or a name with options
    **{name: (name, {}) for name in OBJECTIVES},
    "soft_top_k": (
        "soft_top_k",
        {"k": 2},
    ),  # the default k would give these few labels a place each
    "soft_top_k, k of positives": ("soft_top_k", {"k": "positives", "alpha": 0.7}),
    "bce, mean": ("bce", {"mean": True}),
    "prob_contrastive": ("prob_contrastive", {"c": 0.75, "d": 3.0, "threshold": 0.05}),
    "prob_contrastive, hardest": ("prob_contrastive", {"n_negatives": 3}),
    "triplet": ("triplet", {"margin": 1.3, "n_negatives": 3, "temperature": 0.7}),
    "triplet, zero": (
        "triplet",
        {"margin": 0.9, "n_negatives": 5, "temperature": 1.7, "outside_margin": "zero"},
    ),
    "triplet, even": ("triplet", {"margin": 0.4, "n_negatives": 10, "softmax_weighted": False}),
}
COMPETING = {"pol, competing": "pol", "k-sample, competing": "k-sample"}
"""Reductions that leave the positives they did not draw among the candidates."""
EVERY_REDUCTION = [*REDUCTIONS, *COMPETING]
ALL = [(objective, reduction) for objective in VARIANTS for reduction in EVERY_REDUCTION]
every_pair = pytest.mark.parametrize(("objective", "reduction"), ALL)


def base_loss(objective):
    name, options = VARIANTS[objective]
    return resolve(OBJECTIVES, name, kind="objective")(**options)


def share_out(reduction, pairs):
    """A weight for every pair; a draw is drawn once, so that all ways to compute it agree."""
    if reduction == "pal":
        return dict.fromkeys(pairs, 1.0)
    totals = {i: sum(t for (row, _), t in pairs.items() if row == i) for i, _ in pairs}
    if reduction in ("pal-n", "psl"):
        return {(i, j): 1.0 / totals[i] for i, j in pairs}
    rows = {i: [pair for pair in pairs if pair[0] == i] for i in totals}
    rng = np.random.default_rng(sum(totals))
    weights = dict.fromkeys(pairs, 0.0)
    for mine in rows.values():
        n = min(len(mine), 3 if "k-sample" in reduction else 1)
        for place in rng.choice(len(mine), n, replace=False):
            weights[mine[place]] = 1.0 / (n * pairs[mine[place]])
    return weights


class Fixed:
    """A reduction whose weights are looked up, for those that draw."""

    def __init__(self, weights, *, drops=True):
        self.weights = weights
        self.drops = drops

    def __call__(self, positives, n_rows):
        pairs = zip(positives.rows.tolist(), positives.cols.tolist(), strict=True)
        return positives.targets.new_tensor([self.weights[pair] for pair in pairs])


def parts(objective, reduction, pairs):
    if "pol" in reduction or "k-sample" in reduction:
        drops = reduction not in COMPETING
        return base_loss(objective), Fixed(share_out(reduction, pairs), drops=drops)
    return base_loss(objective), resolve(REDUCTIONS, reduction, kind="reduction")


def make_case(seed=0, *, n_rows=7, n_cols=11, weighted=True, ignored=True):
    """Scores, positives as a dict, and two rows that must not count: no positive, and all -inf."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=(n_rows, n_cols)) * 2)
    relevant = rng.random((n_rows, n_cols)) < 0.3
    relevant[0] = False
    relevant[1] = True  # nothing but positives
    relevant[2] = np.arange(n_cols) == n_cols - 1  # one positive, in the last column
    if ignored:
        dead = (rng.random((n_rows, n_cols)) < 0.2) & ~relevant
        dead[3], relevant[3] = True, False
        scores[torch.from_numpy(dead)] = NOTHING
    pairs = {
        (int(i), int(j)): float(rng.uniform(0.1, 1.0)) if weighted else 1.0
        for i, j in np.argwhere(relevant)
    }
    return scores, pairs


def as_positives(pairs, dtype=torch.float64):
    rows, cols = zip(*pairs, strict=True) if pairs else ((), ())
    return Positives(
        torch.tensor(rows, dtype=torch.int64),
        torch.tensor(cols, dtype=torch.int64),
        torch.tensor(list(pairs.values()), dtype=dtype),
    )


def loss_and_gradient(objective, reduction, scores, pairs, *, weigh=None):
    scores = scores.clone().requires_grad_()
    base, own = parts(objective, reduction, pairs)
    loss = block_loss(base, weigh or own, scores, as_positives(pairs, scores.dtype))
    loss.backward()
    return loss.detach(), scores.grad


# The definitions, one query at a time, with plain exponentials. Each gets the scores of a row, the
# targets of its positives and the candidates that are there, and gives a sum over the negatives and
# a term for every positive.


def reference_softmax(s, targets, alive):
    below = sum(torch.exp(s[j]) for j in alive)
    return 0.0, {p: -t * torch.log(torch.exp(s[p]) / below) for p, t in targets.items()}


def reference_decoupled_softmax(s, targets, alive):
    others = sum(torch.exp(s[j]) for j in alive if j not in targets)
    return 0.0, {
        p: -t * torch.log(torch.exp(s[p]) / (torch.exp(s[p]) + others)) for p, t in targets.items()
    }


def reference_bce(s, targets, alive, mean=False):
    def probability(j):
        return 1 / (1 + torch.exp(-s[j]))

    n = len(alive) if mean else 1
    negatives = sum(-torch.log(1 - probability(j)) / n for j in alive if j not in targets)
    return negatives, {
        p: (-t * torch.log(probability(p)) - (1 - t) * torch.log(1 - probability(p))) / n
        for p, t in targets.items()
    }


def reference_prob_contrastive(s, targets, alive, c=0.9, d=1.5, n_negatives=0, threshold=0.0):
    negatives = sorted((j for j in alive if j not in targets), key=lambda j: -s[j].item())
    costs = []
    for j in negatives[: n_negatives or None]:
        chance = c * torch.exp(d * (s[j] - 1)) if s[j] < 1 else torch.tensor(c, dtype=s.dtype)
        costs.append(-torch.log(1 - chance) / d)
    return sum(cost for cost in costs if cost >= threshold), {
        p: -t * torch.log(c * torch.exp(d * (s[p] - 1))) / d for p, t in targets.items()
    }


def reference_triplet(
    s,
    targets,
    alive,
    margin,
    n_negatives,
    softmax_weighted=True,
    temperature=0.1,
    outside_margin="absent",
):
    negatives = sorted((j for j in alive if j not in targets), key=lambda j: -s[j].item())
    terms = {}
    for p, t in targets.items():
        active = [n for n in negatives[:n_negatives] if margin + s[n] - s[p] > 0]
        sizes = [torch.exp(s[n] / temperature) if softmax_weighted else 1.0 for n in active]
        gaps = [margin + s[n] - s[p] for n in active]
        others = len(negatives[:n_negatives]) - len(active) if outside_margin == "zero" else 0
        whole = sum(sizes) + others  # each of the others has exp(0)
        terms[p] = t * sum(u / whole * gap for u, gap in zip(sizes, gaps, strict=True))
    return 0.0, terms


class Places(torch.autograd.Function):
    """p with sum p = k by bisection, and its Jacobian diag(v) - v v^T / sum v."""

    @staticmethod
    def forward(ctx, s, k, alpha):
        low, high = -1e3, 1e3
        for _ in range(200):
            t = (low + high) / 2
            low, high = (t, high) if torch.sigmoid(alpha * (s + t)).sum() < k else (low, t)
        p = torch.sigmoid(alpha * (s + t))
        ctx.save_for_backward(alpha * p * (1 - p))
        return p

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return v * g - v * (v @ g) / v.sum(), None, None


def reference_soft_top_k(s, targets, alive, k, alpha=2.0):
    k = len(targets) if k == "positives" else k
    if k >= len(alive):
        return 0.0, {p: 0.0 * s[p] for p in targets}
    p = dict(zip(alive, Places.apply(s[alive], k, alpha), strict=True))
    return 0.0, {j: -t * torch.log(p[j]) for j, t in targets.items()}


REFERENCES = {
    "softmax": reference_softmax,
    "decoupled_softmax": reference_decoupled_softmax,
    "bce": reference_bce,
    "triplet": reference_triplet,
    "prob_contrastive": reference_prob_contrastive,
    "soft_top_k": reference_soft_top_k,
}


def definition_of(name):
    """The formula above; that of a part from another package is a method of its own."""
    if name in REFERENCES:
        return REFERENCES[name]
    definition = getattr(resolve(OBJECTIVES, name, kind="objective"), "definition", None)
    return definition or pytest.skip(f"{name} has no static method 'definition' to compare with")


def declaring(capability):
    """Run a test for the objectives that declare a property."""
    pairs = [pair for pair in ALL if getattr(base_loss(pair[0]), capability, False)]
    return pytest.mark.parametrize(("objective", "reduction"), pairs)


def test_the_definitions_cover_every_objective_of_umpteen():
    assert set(REFERENCES) == set(OBJECTIVES.own)


def reference(objective, reduction, scores, pairs):
    name, options = VARIANTS[objective]
    weights = share_out(reduction, pairs)
    total, counted = torch.zeros((), dtype=torch.float64), 0
    for row in range(scores.shape[0]):
        mine = [j for i, j in pairs if i == row]
        if not mine:
            continue
        gone = {j for j in mine if weights[row, j] == 0 and reduction not in COMPETING}
        targets = {j: pairs[row, j] for j in mine if j not in gone}
        alive = [j for j in range(scores.shape[1]) if scores[row, j] != NOTHING and j not in gone]
        negatives, terms = definition_of(name)(scores[row], targets, alive, **options)
        total = total + negatives + sum(weights[row, p] * term for p, term in terms.items())
        counted += 1
    return total / max(counted, 1)


@every_pair
@pytest.mark.parametrize(("seed", "weighted"), [(0, True), (1, False), (2, True)])
def test_loss_and_gradient_equal_the_definition(objective, reduction, seed, weighted):
    scores, pairs = make_case(seed, weighted=weighted)
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    leaf = scores.clone().requires_grad_()
    expected = reference(objective, reduction, leaf, pairs)
    expected.backward()
    assert expected > 0
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-10, atol=1e-12)


@every_pair
def test_a_square_block_has_no_diagonal_of_its_own(objective, reduction):
    scores, pairs = make_case(11, n_rows=8, n_cols=8)
    loss = block_loss(*parts(objective, reduction, pairs), scores, as_positives(pairs))
    expected = reference(objective, reduction, scores, pairs)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


@every_pair
def test_labels_to_queries_is_the_same_law_on_the_transposed_block(objective, reduction):
    scores, pairs = make_case(4, n_rows=5, n_cols=9)
    positives = as_positives(pairs)
    turned = {(j, i): t for (i, j), t in pairs.items()}
    loss = block_loss(*parts(objective, reduction, turned), scores.T, positives.transposed())
    expected = reference(objective, reduction, scores.T.contiguous(), turned)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def streamed(objective, reduction, scores, pairs, size, *, backwards=False):
    """The loss from blocks of columns: a summary of each, merged, and the positives' scores."""
    base, weigh = parts(objective, reduction, pairs)
    weights = dict(zip(pairs, weigh(as_positives(pairs), len(scores)).tolist(), strict=True))
    gone = {pair for pair in pairs if weights[pair] == 0 and reduction not in COMPETING}
    absent = torch.zeros(scores.shape, dtype=torch.bool)
    absent[[i for i, _ in gone], [j for _, j in gone]] = True
    blocks, inside = [], []
    for start in range(0, scores.shape[1], size):
        blocks.append(scores.masked_fill(absent, NOTHING)[:, start : start + size])
        stop = start + blocks[-1].shape[1]
        mine = {(i, j - start): t for (i, j), t in pairs.items() if start <= j < stop}
        inside.append({p: 0.0 if (p[0], p[1] + start) in gone else t for p, t in mine.items()})
    if backwards:
        blocks.reverse(), inside.reverse()
    extra = []
    if hasattr(base, "prepare"):
        everything = as_positives({p: 0.0 if p in gone else t for p, t in pairs.items()})
        extra = [
            base.prepare(
                lambda function, merge: merge(torch.stack([function(b.detach()) for b in blocks])),
                everything,
                len(scores),
            )
        ]
    stats = base.merge(
        torch.stack(
            [
                base.row_stats(b, as_positives(p), *extra)
                for b, p in zip(blocks, inside, strict=True)
            ]
        )
    )
    kept = as_positives({pair: t for pair, t in pairs.items() if pair not in gone})
    kept_weights = torch.tensor([weights[p] for p in pairs if p not in gone], dtype=torch.float64)
    rows = base.loss(stats, scores[kept.rows, kept.cols], kept, kept_weights)
    return rows.sum() / max(1, len({i for i, _ in pairs}))


@every_pair
def test_blocks_of_any_size_give_the_whole(objective, reduction):
    scores, pairs = make_case(1)
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    for size, backwards in ((1, False), (1, True), (3, False), (3, True), (7, True), (100, False)):
        leaf = scores.clone().requires_grad_()
        parted = streamed(objective, reduction, leaf, pairs, size, backwards=backwards)
        parted.backward()
        torch.testing.assert_close(parted.detach(), loss, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-10, atol=1e-12)


@every_pair
def test_the_last_label_of_every_block_stays_a_positive(objective, reduction):
    scores, _ = make_case(2, ignored=False)
    pairs = {(row, col): 1.0 for row in range(7) for col in (2, 5, 8, 10)}
    whole = block_loss(*parts(objective, reduction, pairs), scores, as_positives(pairs))
    torch.testing.assert_close(streamed(objective, reduction, scores, pairs, 3), whole)


@pytest.mark.parametrize("objective", VARIANTS)
def test_merge_is_associative(objective):
    base = base_loss(objective)
    scores, pairs = make_case(3, n_cols=9)
    extra = [torch.zeros(7, 1, dtype=torch.float64)] if hasattr(base, "prepare") else []
    stats = torch.stack(
        [base.row_stats(block, as_positives({}), *extra) for block in scores.split(2, dim=1)]
    )
    left = base.merge(torch.stack([base.merge(stats[:3]), base.merge(stats[3:])]))
    torch.testing.assert_close(left, base.merge(stats), rtol=1e-13, atol=0)
    torch.testing.assert_close(base.merge(stats[:1]), stats[0], rtol=1e-13, atol=0)


@every_pair
def test_permuting_queries_labels_and_pairs_permutes_the_gradient(objective, reduction):
    scores, pairs = make_case(5)
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    rows, cols = torch.randperm(7), torch.randperm(11)
    new_row, new_col = torch.argsort(rows).tolist(), torch.argsort(cols).tolist()
    moved = {(new_row[i], new_col[j]): t for (i, j), t in reversed(list(pairs.items()))}
    weights = share_out(reduction, pairs)
    again, turned = loss_and_gradient(
        objective,
        reduction,
        scores[rows][:, cols],
        moved,
        weigh=Fixed(
            {(new_row[i], new_col[j]): w for (i, j), w in weights.items()},
            drops=reduction not in COMPETING,
        ),
    )
    torch.testing.assert_close(again, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(turned, gradient[rows][:, cols], rtol=1e-10, atol=1e-13)


@every_pair
def test_rows_without_positives_contribute_nothing(objective, reduction):
    scores, pairs = make_case(6)  # row 0 has no positive, row 3 has every candidate filtered
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    assert torch.equal(gradient[0], torch.zeros(11, dtype=torch.float64))
    assert torch.equal(gradient[3], torch.zeros(11, dtype=torch.float64))
    kept = [1, 2, 4, 5, 6]
    fewer = {(kept.index(i), j): t for (i, j), t in pairs.items()}
    weights = {(kept.index(i), j): w for (i, j), w in share_out(reduction, pairs).items()}
    weigh = Fixed(weights, drops=reduction not in COMPETING)
    alone = block_loss(base_loss(objective), weigh, scores[kept], as_positives(fewer))
    torch.testing.assert_close(loss, alone, rtol=1e-12, atol=0)


@every_pair
def test_a_block_without_any_positive_gives_zero_and_a_gradient_of_zero(objective, reduction):
    for shape in ((3, 5), (1, 1), (4, 0), (0, 4)):
        for score in (NOTHING, 3.0):
            scores = torch.full(shape, score, dtype=torch.float64)
            loss, gradient = loss_and_gradient(objective, reduction, scores, {})
            assert loss == 0, (shape, score)
            assert torch.equal(gradient, torch.zeros(shape, dtype=torch.float64)), (shape, score)


@every_pair
def test_filtered_pairs_are_as_if_they_were_not_there(objective, reduction):
    scores, _ = make_case(7, n_cols=6, ignored=False)
    pairs = {(row, row % 2): 1.0 for row in range(7)}
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    wider = torch.cat([scores, torch.full((7, 4), NOTHING, dtype=torch.float64)], dim=1)
    again, wider_gradient = loss_and_gradient(objective, reduction, wider, pairs)
    torch.testing.assert_close(again, loss, rtol=1e-13, atol=0)
    torch.testing.assert_close(wider_gradient[:, :6], gradient, rtol=1e-12, atol=1e-14)
    assert torch.equal(wider_gradient[:, 6:], torch.zeros(7, 4, dtype=torch.float64))


@declaring("shift_invariant")
def test_a_shift_invariant_objective_does_not_change_with_a_constant(objective, reduction):
    # With a mask of -100 the masked pairs would outweigh everything once scores are near -500.
    scores, pairs = make_case(8)
    loss, gradient = loss_and_gradient(objective, reduction, scores, pairs)
    low, low_gradient = loss_and_gradient(objective, reduction, scores - 500, pairs)
    torch.testing.assert_close(low, loss, rtol=1e-10, atol=0)
    torch.testing.assert_close(low_gradient, gradient, rtol=1e-8, atol=1e-11)


@every_pair
def test_scores_and_positives_are_not_modified(objective, reduction):
    scores, pairs = make_case(9)
    positives = as_positives(pairs)
    before = scores.clone(), positives.targets.clone(), positives.rows.clone()
    block_loss(*parts(objective, reduction, pairs), scores, positives)
    assert torch.equal(scores, before[0])
    assert torch.equal(positives.targets, before[1])
    assert torch.equal(positives.rows, before[2])


@every_pair
def test_huge_scores_stay_finite_in_float32(objective, reduction):
    scores = torch.full((3, 5), 1e4)
    scores[:, ::2] = -1e4
    pairs = {(0, 0): 1.0, (0, 1): 1.0, (1, 1): 1.0, (2, 4): 1.0}
    for sign in (1.0, -1.0):
        loss, gradient = loss_and_gradient(objective, reduction, sign * scores, pairs)
        assert math.isfinite(loss), sign
        assert torch.isfinite(gradient).all(), sign
        if "prob_contrastive" in objective:  # which takes cosines, and falls beyond 1
            continue
        assert loss > 0, sign  # a positive is far below a negative in both signs
        if VARIANTS[objective][0] in OBJECTIVES.own:  # none of which is bounded
            assert loss > 1e3, sign


@declaring("monotone")
def test_a_monotone_objective_falls_with_the_scores_of_positives(objective, reduction):
    for seed in range(3):
        scores, pairs = make_case(seed, weighted=False)
        _, gradient = loss_and_gradient(objective, reduction, scores * 3, pairs)
        positives = as_positives(pairs)
        assert (gradient[positives.rows, positives.cols] <= 0).all(), seed


@every_pair
def test_float32_agrees_with_float64_to_float32_rounding(objective, reduction):
    scores, pairs = make_case(10)
    exact, _ = loss_and_gradient(objective, reduction, scores, pairs)
    rough, gradient = loss_and_gradient(objective, reduction, scores.float(), pairs)
    assert rough.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(
        rough.double(), exact, rtol=1e-5, atol=0
    )  # some 11 roundings of 6e-8


@pytest.mark.parametrize("objective", VARIANTS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_the_table_draw_or_weigh_as_the_lookup_says(objective, name):
    """The laws above look the drawn positives up; here the table's own reductions run."""
    scores, pairs = make_case(12)
    weigh = resolve(REDUCTIONS, name, kind="reduction")
    torch.manual_seed(5)
    loss = block_loss(base_loss(objective), weigh, scores, as_positives(pairs))
    torch.manual_seed(5)
    weights = weigh(as_positives(pairs), 7).tolist()
    table = dict(zip(pairs, weights, strict=True))
    drawn = Fixed(table, drops=getattr(weigh, "drops", False))
    expected = block_loss(base_loss(objective), drawn, scores, as_positives(pairs))
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
