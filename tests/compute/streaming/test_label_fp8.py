"""Scores from eight-bit factors: what they are off by, and the loss that is made of them."""

import math

import numpy as np
import pytest
import torch

from compute.streaming.test_label_blocks import UNDRAWN, dense, on_gpu, parts
from compute.streaming.test_label_updates import NAMED, named_pairs
from umpteen.compute.streaming.label_blocks import streamed_loss
from umpteen.compute.streaming.label_fp8 import Codes, fits, multiply_codes
from umpteen.errors import UmpteenError
from umpteen.types import Positives

B, L, D = 32, 150, 256


def make_vectors(seed=0):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.nn.functional.normalize(torch.randn(B, D, generator=generator), dim=1)
    labels = torch.randn(L, D, generator=generator) * torch.rand(L, 1, generator=generator)
    pairs = np.argwhere(np.random.default_rng(seed).random((B, L)) < 0.03)
    return queries, labels, Positives(pairs[:, 0], pairs[:, 1], np.ones(len(pairs)))


def test_codes_stand_for_numbers_within_a_sixteenth():
    _, labels, _ = make_vectors()
    labels[3] = 0.0
    values = Codes(labels).values()
    assert torch.isfinite(values).all()
    assert not values[3].any()
    # Below the smallest normal number, 2^-6 of 440, steps no longer shrink with the number.
    slack = labels.abs().amax(dim=1, keepdim=True) * 2**-10 / 440
    assert ((values - labels).abs() <= labels.abs() / 15 + slack).all()


def error_of(scores, queries, labels):
    """Root mean square of the scores' errors, over |q| |l| / sqrt(D)."""
    exact = labels.double() @ queries.double().T
    scale = labels.norm(dim=1, keepdim=True) * queries.norm(dim=1) / math.sqrt(D)
    return float(((scores.double() - exact) / scale).square().mean().sqrt())


def test_scores_are_off_by_0_038_lengths_over_the_root_of_the_size():
    queries, labels, _ = make_vectors()
    found = multiply_codes(Codes(labels), Codes(queries))
    assert error_of(found, queries, labels) == pytest.approx(0.038, abs=0.004)


@pytest.mark.parametrize(("objective", "reduction"), [p for p in UNDRAWN if p[0] in NAMED])
def test_a_loss_of_eight_bit_scores_is_near_the_whole(objective, reduction):
    queries, labels, positives = make_vectors(1)
    base, weigh = parts(objective, reduction)
    sides = [v.clone().requires_grad_() for v in (queries, labels)]
    loss = streamed_loss(base, weigh, *sides, positives, block_size=37, precision="fp8")
    found = torch.autograd.grad(loss, sides)
    sides = [v.double().requires_grad_() for v in (queries, labels)]
    exact = dense(base, weigh, *sides, positives, 1.0, None, 1.0)
    expected = torch.autograd.grad(exact, sides)
    # A score of about 1 is off by about 0.02: 2% of a slope, less of a sum of slopes.
    torch.testing.assert_close(loss.detach().double(), exact.detach(), rtol=1e-3, atol=0)
    for mine, theirs in zip(found, expected, strict=True):
        error = float((mine.double() - theirs).norm() / theirs.norm())
        assert 0 < error < 0.03


@named_pairs
def test_dropped_positives_and_ignored_pairs_are_out_of_eight_bit_scores_too(objective, reduction):
    queries, labels, positives = make_vectors(4)
    base, weigh = parts(objective, reduction)
    ignored = np.array([[0, 5], [3, 149], [31, 0]])
    ignored = ignored[~np.isin(ignored @ [L, 1], positives.rows * L + positives.cols)]
    losses = []
    for precision in ("fp8", "bf16"):
        torch.manual_seed(1)
        losses.append(
            streamed_loss(
                base, weigh, queries, labels, positives, ignored=ignored, precision=precision
            )
        )
    torch.testing.assert_close(*losses, rtol=2e-3, atol=0)


def test_odd_sizes_are_multiplied_in_bfloat16():
    assert fits(256)
    assert not fits(250)
    queries, labels, positives = make_vectors(2)
    base, weigh = parts("bce", "pal")
    losses = [
        streamed_loss(
            base, weigh, queries[:, :250], labels[:, :250], positives, precision=precision
        )
        for precision in ("fp8", "bf16")
    ]
    assert torch.equal(*losses)


@named_pairs
@pytest.mark.parametrize("n_queries", [1, 17, 31])
def test_a_batch_of_any_size_is_multiplied_in_eight_bits(objective, reduction, n_queries):
    """As if the batch were larger by queries that have no positive and take no part."""
    queries, labels, positives = make_vectors(5)
    base, weigh = parts(objective, reduction)
    keep = positives.rows < n_queries
    few = Positives(*(getattr(positives, f)[keep] for f in ("rows", "cols", "targets")))
    whole, some = (q.clone().requires_grad_() for q in (queries, queries[:n_queries]))
    results = []
    for given in (whole, some):
        torch.manual_seed(1)
        loss = streamed_loss(base, weigh, given, labels, few, block_size=40, precision="fp8")
        results.append((loss.detach(), torch.autograd.grad(loss, given)[0][:n_queries]))
    torch.manual_seed(1)
    half = streamed_loss(base, weigh, some, labels, few, block_size=40, precision="bf16")
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert results[1][0] != half


def test_an_unknown_precision_is_refused():
    queries, labels, positives = make_vectors()
    base, weigh = parts("bce", "pal")
    with pytest.raises(UmpteenError, match="precision 'int8' is not known"):
        streamed_loss(base, weigh, queries, labels, positives, precision="int8")


@pytest.mark.gpu
@on_gpu
def test_a_gpu_multiplies_the_same_codes():
    queries, labels, positives = make_vectors(3)
    found = multiply_codes(Codes(labels.cuda().bfloat16()), Codes(queries.cuda().bfloat16()))
    expected = multiply_codes(Codes(labels.bfloat16()), Codes(queries.bfloat16()))
    # bfloat16 results: one step, and what a matrix unit's shorter sums leave of cancelled terms.
    torch.testing.assert_close(found.cpu(), expected, rtol=2**-7, atol=2e-3)
    base, weigh = parts("decoupled_softmax", "pal-n")
    losses = [
        streamed_loss(base, weigh, q, z, positives, block_size=64, precision="fp8").cpu()
        for q, z in ((queries, labels), (queries.cuda(), labels.cuda()))
    ]
    torch.testing.assert_close(*losses, rtol=1e-3, atol=0)
