"""Cached gradients against those of the whole graph, dropout on, in float64."""

import pytest
import torch
from torch import nn

from compute.streaming.test_label_blocks import every_pair, parts
from umpteen.compute.grad_cache import Side, cached_vectors, chunk_randomness
from umpteen.compute.streaming.label_blocks import streamed_loss
from umpteen.errors import UmpteenError
from umpteen.objectives.base import block_loss
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.reductions import mean_of_positives
from umpteen.types import Positives

POSITIVES = Positives(
    torch.tensor([0, 0, 2, 5, 6]),
    torch.tensor([10, 3, 0, 8, 4]),
    torch.tensor([1.0, 0.5, 0.3, 1.0, 0.8]).double(),
)


def cached_backward(sides, loss, *, seed):
    """Back-propagate a loss of several sides' vectors, one chunk's graph at a time."""
    value = loss(*(cached_vectors(side, seed=seed, stream=i) for i, side in enumerate(sides)))
    value.backward()
    return value.detach()


def make_encoder(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Dropout(0.4), nn.Linear(9, 4), nn.Dropout(0.2)
    ).to(dtype)


def make_texts(dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(7, 6, dtype=dtype), torch.randn(11, 6, dtype=dtype)


def loss_of(queries, labels):
    return block_loss(DecoupledSoftmax(), mean_of_positives, 3 * queries @ labels.T, POSITIVES)


def with_whole_graph(sides, loss, seed):
    vectors = []
    for stream, side in enumerate(sides):
        parts = []
        for i, chunk in enumerate(side.chunks):
            with chunk_randomness(seed, stream, i):
                parts.append(side.encode(chunk))
        vectors.append(torch.cat(parts))
    value = loss(*vectors)
    value.backward()
    return value.detach()


def gradients(*modules):
    return [p.grad.clone() for m in modules for p in m.parameters() if p.grad is not None]


def compare(run, *modules):
    """Value and gradients of ``run(cached_backward)`` and ``run(with_whole_graph)``."""
    results = []
    for how in (lambda s, f, seed: cached_backward(s, f, seed=seed), with_whole_graph):
        for module in modules:
            module.zero_grad()
        value = run(how)
        results.append([value, *gradients(*modules)])
    assert len(results[0]) == len(results[1]) > 1
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)
    return results[0]


@pytest.mark.parametrize("sizes", [(7, 11), (3, 4), (1, 1), (2, 100)])
def test_both_sides_through_one_encoder_with_dropout(sizes):
    encoder, (queries, labels) = make_encoder(), make_texts()
    sides = [Side(encoder, queries.split(sizes[0])), Side(encoder, labels.split(sizes[1]))]
    compare(lambda how: how(sides, loss_of, 17), encoder)


def test_each_side_may_have_an_encoder_of_its_own_or_be_frozen():
    one, two = make_encoder(), make_encoder()
    queries, labels = make_texts()
    sides = [Side(one, queries.split(2)), Side(two, labels.split(3))]
    compare(lambda how: how(sides, loss_of, 3), one, two)
    one.requires_grad_(False)
    one.zero_grad(set_to_none=True)
    compare(lambda how: how(sides, loss_of, 3), one, two)
    assert all(p.grad is None for p in one.parameters())


def test_dropout_is_on_and_differs_by_seed_side_and_chunk():
    drop = nn.Dropout(0.5)
    chunks = torch.ones(3, 64).split(1)
    vectors = [
        cached_vectors(Side(drop, chunks), seed=s, stream=t) for s, t in ((1, 0), (1, 1), (2, 0))
    ]
    rows = torch.cat(vectors)
    assert len(torch.unique(rows, dim=0)) == 9
    assert torch.equal(cached_vectors(Side(drop, chunks), seed=1), vectors[0])


def test_the_generators_are_left_as_they_were():
    encoder, (queries, labels) = make_encoder(), make_texts()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    cached_backward(
        [Side(encoder, queries.split(3)), Side(encoder, labels.split(4))], loss_of, seed=1
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_parameters_of_the_loss_get_their_gradient_and_grads_add_up():
    encoder, (queries, labels) = make_encoder(), make_texts()
    temperature = nn.ParameterList([nn.Parameter(torch.tensor(0.7, dtype=torch.float64))])
    sides = [Side(encoder, queries.split(3)), Side(encoder, labels.split(4))]

    def loss(q, z):
        return loss_of(q * temperature[0], z)

    first = compare(lambda how: how(sides, loss, 9), encoder, temperature)
    for module in (encoder, temperature):
        module.zero_grad()
    for _ in range(2):
        cached_backward(sides, loss, seed=9)
    twice = gradients(encoder, temperature)
    for mine, once in zip(twice, first[1:], strict=True):
        torch.testing.assert_close(mine, 2 * once, rtol=1e-12, atol=1e-14)


def test_a_scaled_loss_is_scaled_once():
    encoder, (queries, labels) = make_encoder(), make_texts()
    sides = [Side(encoder, queries.split(3)), Side(encoder, labels.split(4))]
    cached_backward(sides, loss_of, seed=2)
    plain = gradients(encoder)
    encoder.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    cached_backward(sides, lambda q, z: scaler.scale(loss_of(q, z)), seed=2)
    for scaled, once in zip(gradients(encoder), plain, strict=True):
        assert torch.equal(scaled, 1024 * once)  # a power of two rounds nothing


@pytest.mark.parametrize("backward_inside", [True, False])
def test_autocast_holds_in_both_passes_and_leaves_no_weights_without_a_graph(backward_inside):
    encoder, head = make_encoder(torch.float32), nn.Linear(4, 4)
    texts, _ = make_texts(torch.float32)
    seen = []

    def encode(chunk):
        vectors = head(encoder(chunk))
        seen.append(vectors.dtype)
        return vectors

    def run(vectors_of):
        encoder.zero_grad(), head.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = vectors_of()
            loss = head(vectors).float().square().sum()  # the head again, in the same context
            if backward_inside:
                loss.backward()
        if not backward_inside:
            loss.backward()
        return gradients(encoder, head)

    def whole():
        parts = []
        for i, chunk in enumerate(texts.split(3)):
            with chunk_randomness(4, 0, i):
                parts.append(encode(chunk))
        return torch.cat(parts)

    mine = run(lambda: cached_vectors(Side(encode, texts.split(3)), seed=4))
    assert len(seen) == 6
    assert set(seen) == {torch.bfloat16}
    for one, other in zip(mine, run(whole), strict=True):
        # chunks add up in float32 after a bfloat16 product each, the whole graph's casts likewise
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * other.abs().max().item())
        assert one.abs().sum() > 0


def test_a_backward_inside_autocast_does_not_change_an_encoding_outside_it():
    encoder = make_encoder(torch.float32)
    texts, _ = make_texts(torch.float32)
    seen = []

    def encode(chunk):
        seen.append(encoder(chunk))
        return seen[-1]

    vectors = cached_vectors(Side(encode, texts.split(4)), seed=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors.sum().backward()
    for first, second in ((seen[0], seen[2]), (seen[1], seen[3])):
        assert torch.equal(first, second.detach())


@every_pair
def test_cached_and_streamed_together_equal_the_dense_loss(objective, reduction):
    encoder, (queries, labels) = make_encoder(), make_texts()
    base, weigh = parts(objective, reduction)
    sides = [Side(encoder, queries.split(3)), Side(encoder, labels.split(4))]

    def run(how):
        def loss(q, z):
            torch.manual_seed(6)  # for the reduction that draws
            if how is with_whole_graph:
                return block_loss(base, weigh, 2 * q @ z.T, POSITIVES)
            return streamed_loss(base, weigh, q, z, POSITIVES, scale=2.0, block_size=3)

        return how(sides, loss, 11)

    compare(run, encoder)


def test_one_chunk_s_graph_is_alive_at_a_time():
    alive, most = set(), []

    class Traced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name):
            ctx.name = name
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            alive.discard(ctx.name)
            return gradient, None

    weight = torch.ones(3, requires_grad=True)

    def encode(chunk):
        if torch.is_grad_enabled():
            alive.add(len(most))
            most.append(len(alive))
        return Traced.apply(chunk * weight, len(most) - 1)

    vectors = cached_vectors(Side(encode, torch.ones(8, 3).split(2)), seed=0)
    assert most == []  # the first pass has no graph
    vectors.sum().backward()
    assert most == [1, 1, 1, 1]
    assert weight.grad.tolist() == [8.0, 8.0, 8.0]


def test_without_gradients_it_is_a_plain_encoding():
    encoder, (queries, _) = make_encoder().eval(), make_texts()
    with torch.no_grad():
        vectors = cached_vectors(Side(encoder, queries.split(3)), seed=0)
        assert not vectors.requires_grad
        torch.testing.assert_close(vectors, encoder(queries))


def test_a_side_without_chunks_is_refused():
    with pytest.raises(UmpteenError, match="at least one chunk"):
        cached_vectors(Side(make_encoder(), []), seed=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_chunks_on_the_host_replay_the_dropout_of_the_device():
    encoder, (queries, labels) = make_encoder().cuda(), make_texts()

    def encode(chunk):
        return encoder(chunk.cuda())

    def loss(q, z):
        placed = Positives(*(getattr(POSITIVES, f).cuda() for f in ("rows", "cols", "targets")))
        return block_loss(DecoupledSoftmax(), mean_of_positives, 3 * q @ z.T, placed)

    sides = [Side(encode, queries.split(3)), Side(encode, labels.split(4))]
    before = torch.cuda.get_rng_state()
    compare(lambda how: how(sides, loss, 5), encoder)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
            ],
        ),
    ],
)
def test_in_bfloat16_chunks_leave_the_gradient_within_a_hundredth_of_the_uncached(device):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(48, 160), nn.GELU(), nn.Linear(160, 32)).to(device)
    sides = torch.randn(37, 48, device=device), torch.randn(301, 48, device=device)
    rows = torch.arange(37, device=device).repeat(3)
    cols = torch.randint(0, 301, (111,), device=device)
    placed = Positives(rows, cols, torch.ones(111, device=device))

    def encode(texts):
        with torch.autocast(device, dtype=torch.bfloat16):
            return encoder(texts).float()

    def loss(queries, labels):
        vectors = (nn.functional.normalize(v, dim=1) for v in (queries, labels))
        return streamed_loss(
            DecoupledSoftmax(), mean_of_positives, *vectors, placed,
            scale=20.0, block_size=64, precision="bf16",
        )  # fmt: skip

    found = []
    for cached in (True, False):
        encoder.zero_grad()
        if cached:
            chunked = [Side(encode, side.split(29)) for side in sides]
            value = cached_backward(chunked, loss, seed=1)
        else:
            value = loss(*map(encode, sides))
            value.backward()
        found.append((value.detach(), torch.cat([g.flatten() for g in gradients(encoder)])))
    (value, mine), (whole, theirs) = found
    # Why a hundredth: see the first lines of compute/grad_cache.py.
    torch.testing.assert_close(value, whole, rtol=2e-3, atol=0)
    assert (mine - theirs).norm() < 0.01 * theirs.norm()
