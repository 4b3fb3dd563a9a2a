"""Each kernel against its plain expression, in Triton's interpreter or on a GPU."""

import pytest
import torch

from umpteen.index import groups as plain
from umpteen.index.groups import plain_span_maxima

pytest.importorskip("triton")
from umpteen.index import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [("tiled", 3), ("tiled", 257), ("persistent", 131), ("persistent", 1)]


def make(n_queries, n_labels, dim, dtype, seed=0):
    """Whole numbers of which every product and sum is exact in float32, and a bias."""
    generator = torch.Generator().manual_seed(seed)
    queries, labels = (
        torch.randint(-3, 4, (n, dim), generator=generator).float().to(dtype)
        for n in (n_queries, n_labels)
    )
    bias = torch.where(torch.rand(n_labels, generator=generator) < 0.2, -torch.inf, 0.0)
    bias[128:256] = -torch.inf  # a span without any label
    return queries.to(DEVICE), labels.to(DEVICE), bias.to(DEVICE)


@pytest.mark.parametrize(("name", "n_queries"), SHAPES)
@pytest.mark.parametrize(
    ("dtype", "dim"), [(torch.bfloat16, 64), (torch.bfloat16, 192), (torch.float8_e4m3fn, 256)]
)
def test_maxima_are_those_of_the_scores(name, n_queries, dtype, dim):
    queries, labels, bias = make(n_queries, 768, dim, dtype)
    wanted = plain.plain_maxima(queries, labels, bias)
    found = kernels.group_maxima(queries, labels, bias, tile=kernels.TILES[name])
    for one, other in zip(wanted, found, strict=True):
        assert torch.equal(one, other)
    spans = kernels.span_maxima(queries, labels, bias, tile=kernels.TILES[name])
    assert torch.equal(spans, plain_span_maxima(queries, labels, bias))


def test_the_default_tile_gives_the_same_maxima_and_is_fed_only_where_it_can_be(monkeypatch):
    queries, labels, bias = make(131, 768, 64, torch.bfloat16)
    wanted = plain.plain_maxima(queries, labels, bias)
    for one, other in zip(wanted, kernels.group_maxima(queries, labels, bias), strict=True):
        assert torch.equal(one, other)
    assert not kernels.default_tile(torch.device("cpu"), 10**4, 10**6).persistent
    monkeypatch.setattr(kernels, "_processors", lambda device: 132)
    for generation, n_labels, fed in ((8, 10**6, False), (9, 10**6, True), (9, 512, False)):
        there = (generation, 0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, there=there: there)
        assert kernels.default_tile(torch.device("cuda"), 1000, n_labels).persistent == fed


def test_plain_maxima_are_those_of_all_scores_and_need_no_more_memory_than_told():
    queries, labels, bias = make(5, 768, 64, torch.bfloat16)
    scores = queries.float() @ labels.float().T + bias
    rows = plain.members(torch.arange(96, device=DEVICE))
    for memory_bytes in (1, 6000, 1 << 20):
        groups, spans = plain.plain_maxima(queries, labels, bias, memory_bytes=memory_bytes)
        assert torch.equal(groups, scores[:, rows].amax(dim=2))
        assert torch.equal(spans, scores.unflatten(1, (-1, 128)).amax(dim=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_labels", "dim", "width"), [(5, 3, 1), (700, 12, 7), (300, 200, 9)])
def test_candidates_get_the_scores_of_a_product(dtype, n_labels, dim, width):
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(4, dim, generator=generator).to(dtype)
    vectors = torch.randn(n_labels, dim, generator=generator).to(dtype)
    n_groups = -(-n_labels // plain.SPAN) * plain.GROUPS_PER_SPAN
    groups = torch.randint(n_groups, (4, width), generator=generator)
    rows = plain.members(groups).flatten(1)
    wanted = (queries.double() @ vectors.double().T).gather(1, rows.clamp(max=n_labels - 1))
    place = {"device": DEVICE}
    for function in (kernels.candidate_scores, plain.plain_scores):
        found = function(queries.to(**place), vectors.to(**place), groups.to(**place))
        # Sums of up to 200 terms of size one, in float32.
        torch.testing.assert_close(found.cpu().double(), wanted, atol=1e-4, rtol=1e-5)


def test_equal_vectors_get_equal_scores_wherever_they_are():
    vectors = torch.randn(1, 200, generator=torch.Generator().manual_seed(2)).expand(300, -1)
    queries = torch.randn(2, 200, generator=torch.Generator().manual_seed(3))
    groups = torch.arange(35).expand(2, -1)
    found = kernels.candidate_scores(
        queries.to(DEVICE), vectors.contiguous().to(DEVICE), groups.contiguous().to(DEVICE)
    )
    assert (found == found[:, :1]).all()


def large(*sizes):
    """Sizes for a GPU alone: places in them take more than 32 bits."""
    no_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
    return pytest.param(*sizes, marks=[pytest.mark.gpu, no_gpu])


@pytest.mark.parametrize("name", ["tiled", "persistent"])
@pytest.mark.parametrize(("n_queries", "n_labels"), [(130, 1024), large(16_384, 1_048_832)])
def test_maxima_of_the_last_queries_are_where_they_belong(name, n_queries, n_labels):
    queries, labels, bias = make(n_queries, n_labels, 64, torch.bfloat16)
    found = kernels.group_maxima(queries, labels, bias, tile=kernels.TILES[name])
    assert n_queries < 1000 or found[0].numel() > 2**31
    wanted = plain.plain_maxima(queries[-3:], labels, bias)
    for one, other in zip(wanted, found, strict=True):
        assert torch.equal(one, other[-3:])


@pytest.mark.parametrize("n_labels", [1024, large(2**22 + 512)])
def test_the_last_labels_are_read_where_they_are(n_labels):
    generator = torch.Generator().manual_seed(4)
    whole = torch.randint(-3, 4, (259, 512), generator=generator).to(DEVICE, torch.bfloat16)
    queries, last = whole[:3].clone(), whole[3:]
    labels = torch.zeros(n_labels, 512, dtype=torch.bfloat16, device=DEVICE)
    assert n_labels < 2000 or labels.numel() > 2**31
    labels[-256:] = last
    groups = torch.arange(n_labels // plain.GROUP, device=DEVICE)[-32:].expand(3, -1)
    rows = plain.members(groups).flatten(1) - (n_labels - 256)
    wanted = (queries.float() @ last.float().T).gather(1, rows)
    assert torch.equal(kernels.candidate_scores(queries, labels, groups), wanted)
    bias = torch.zeros(n_labels, device=DEVICE)
    for name in ("tiled", "persistent"):
        maxima, _ = kernels.group_maxima(queries, labels, bias, tile=kernels.TILES[name])
        assert torch.equal(maxima[:, -32:], wanted.unflatten(1, (32, -1)).amax(dim=2))
        assert not maxima[:, :-32].any()
