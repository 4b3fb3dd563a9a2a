"""The kernels of summaries and slopes against their plain functions, and inside a whole loss.

Without a GPU they run in Triton's interpreter.
"""

import os

import pytest
import torch

from compute.streaming.test_label_blocks import make_case, parts
from compute.streaming.test_label_updates import named_pairs, separately, updated
from umpteen.compute.streaming import explicit_gradients
from umpteen.compute.streaming.explicit_gradients import PLAIN

pytest.importorskip("triton", reason="needs Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("without a GPU Triton must be in its interpreter", allow_module_level=True)

from umpteen.compute.kernels.label_kernels import KERNELS  # noqa: E402

SHAPES = [(1, 1), (300, 7), (256, 128), (37, 131), (0, 5)]
every_summary = pytest.mark.parametrize("name", PLAIN)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
near = {"rtol": 1e-5, "atol": 1e-6}  # exp(x) has the rounding of x, 4e-6 at x = -40


def scores_of(shape, scale=8.0):
    generator = torch.Generator().manual_seed(sum(shape))
    scores = scale * torch.randn(shape, generator=generator)
    scores[torch.rand(shape, generator=generator) < 0.1] = float("-inf")
    if shape[1] > 2:
        scores[:, 2] = float("-inf")  # a query for which no label counts
    return scores.to(DEVICE)


def summary_of(functions, scores):
    return functions.merge(functions.summarise(scores))


def test_there_is_a_kernel_for_every_summary():
    assert set(KERNELS) == set(PLAIN)


@every_summary
@every_shape
def test_summaries_are_those_of_the_plain_functions(name, shape):
    scores = scores_of(shape)
    expected = summary_of(PLAIN[name], scores.double()).float()
    torch.testing.assert_close(summary_of(KERNELS[name], scores), expected, **near)


@every_summary
@every_shape
def test_slopes_are_those_of_the_plain_functions(name, shape):
    scores = scores_of(shape)
    summary = summary_of(PLAIN[name], scores)
    shift = summary.masked_fill(torch.isneginf(summary), 0.0)
    factor = torch.linspace(0.0, 2.0, shape[1], device=DEVICE)  # the first query has no positive
    last_place = {"rtol": 2**-7, "atol": 1e-6}  # the interpreter cuts off and does not round
    for kind, most in ((torch.float32, near), (torch.bfloat16, last_place)):
        expected = PLAIN[name].slopes_(scores.double(), shift.double(), factor.double(), kind)
        found = KERNELS[name].slopes_(scores.clone(), shift, factor, kind)
        assert found.dtype == kind
        torch.testing.assert_close(found, expected, **most)


@every_shape
def test_both_at_once_are_the_two(shape):
    scores = scores_of(shape)
    factor = torch.linspace(0.0, 2.0, shape[1], device=DEVICE)
    kernel = KERNELS["softplus"]
    summary, slopes = kernel.summarise_and_slopes_(scores.clone(), factor, torch.float32)
    torch.testing.assert_close(kernel.merge(summary), summary_of(kernel, scores), **near)
    assert torch.equal(slopes, kernel.slopes_(scores, factor, factor, torch.float32))


@every_summary
@pytest.mark.parametrize(
    "shape",
    [
        (700, 131),
        pytest.param(
            (4_200_000, 515),  # places in it take more than 32 bits
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device"),
            ],
        ),
    ],
    ids=str,
)
def test_the_last_labels_of_a_block_are_where_they_belong(name, shape):
    scores = torch.full(shape, float("-inf"), dtype=torch.bfloat16, device=DEVICE)
    assert shape[0] < 1000 or scores.numel() > 2**31
    scores[-300:] = scores_of((300, shape[1])).bfloat16()
    last = scores[-300:].clone()
    summary = summary_of(PLAIN[name], last.double()).float()
    torch.testing.assert_close(summary_of(KERNELS[name], scores), summary, **near)
    given = summary.masked_fill(torch.isneginf(summary), 0.0), torch.ones(shape[1], device=DEVICE)
    expected = KERNELS[name].slopes_(last, *given, torch.bfloat16)
    slopes = KERNELS[name].slopes_(scores, *given, torch.bfloat16)
    assert torch.equal(slopes[-300:], expected)
    assert expected.any()
    assert not slopes[:-300].any()


def test_small_terms_of_a_sum_of_softplus_are_not_lost():
    scores = torch.full((4096, 3), -18.0, device=DEVICE)  # 1 + exp(-18) is 1 in float32
    expected = summary_of(PLAIN["softplus"], scores.double()).float()
    torch.testing.assert_close(summary_of(KERNELS["softplus"], scores), expected, rtol=1e-5, atol=0)


@named_pairs
@pytest.mark.parametrize("size", [9, 100])
def test_a_loss_with_kernels_is_that_without(objective, reduction, size, monkeypatch):
    if DEVICE == "cuda" and reduction == "pol":
        pytest.skip("a GPU's generator draws otherwise")
    case = make_case(30, dtype=torch.float32)
    exact = make_case(30)
    options = {"rate": 0.3, "weight": 0.7, "block_size": size}
    expected = separately(objective, reduction, case, **options)
    if reduction != "pol":  # draws in another type are other draws
        expected = separately(objective, reduction, exact, **options)
    if DEVICE == "cpu":
        for name, functions in KERNELS.items():
            monkeypatch.setitem(explicit_gradients.PLAIN, name, functions)
    placed = *(v.detach().to(DEVICE).requires_grad_() for v in case[:3]), *case[3:]
    for mine, theirs in zip(
        updated(objective, reduction, placed, **options), expected, strict=True
    ):
        torch.testing.assert_close(mine.cpu().double(), theirs.double(), rtol=1e-5, atol=1e-5)
    assert parts(objective, reduction)[0].summary is not None
