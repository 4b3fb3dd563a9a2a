"""Replayed passes equal the calls they were recorded from, and never mix with each other."""

import copy

import numpy as np
import pytest
import torch
from tests.model.test_fixed_plan import of_lengths
from tests.model.test_packed import DROPOUTS, make

from umpteen.model.replays import stand_ins
from umpteen.model.transformer import TransformerEncoder
from umpteen.types import Ragged

CUDA = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are CUDA's")
V = 60


def encoder_on_gpu(name="BertModel", pooling="mean", **changes):
    network = make(name, **{**DROPOUTS, **changes}) if name == "BertModel" else make(name)
    encoder = TransformerEncoder(network.to(CUDA), pooling=pooling).train()
    encoder.replay(True)
    assert encoder.replays is not None
    return encoder


def planned(encoder, seed, n=50):
    rng = np.random.default_rng(seed)
    tokens = of_lengths(rng.integers(3, 40, n), seed)
    ids = (tokens.ids % (V - 5) + 5).astype(np.int32)
    return Ragged(ids, tokens.offsets, encoder.plan(Ragged(ids, tokens.offsets)))


def one_pass(encoder, tokens, above, *, seed, half=True):
    """Vectors and gradients of a pass with this seed's dropout."""
    encoder.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
        vectors = encoder(tokens)
    vectors.backward(above)
    named = encoder.named_parameters()
    return vectors.detach(), {n: p.grad.clone() for n, p in named if p.grad is not None}


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    assert set(found[1]) == set(expected[1])
    for name, gradient in found[1].items():
        # Rows of token tables are added up in any order.
        torch.testing.assert_close(gradient, expected[1][name], rtol=1e-4, atol=1e-5)


def without_graphs(encoder):
    other = TransformerEncoder(copy.deepcopy(encoder.network), pooling=encoder.pooling)
    return other.train()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(
    ("name", "pooling"),
    [("BertModel", "mean"), ("BertModel", "first"), ("DistilBertModel", "mean")],
)
def test_a_replay_equals_the_calls(name, pooling, half):
    encoder = encoder_on_gpu(name, pooling)
    plain = without_graphs(encoder)
    above = torch.randn(50, 24, device=CUDA)
    batches = [planned(encoder, seed) for seed in (0, 1, 2)]
    for step in range(9):
        tokens = batches[step % 3]
        found = one_pass(encoder, tokens, above, seed=step, half=half)
        assert_same(found, one_pass(plain, tokens, above, seed=step, half=half))
        with torch.no_grad():  # as an optimizer would
            for mine, theirs in zip(encoder.parameters(), plain.parameters(), strict=True):
                mine.add_(0.01)
                theirs.add_(0.01)
    assert not encoder.replays.given_up
    assert len(encoder.replays) == len({b.plan.sizes for b in batches})


@pytest.mark.gpu
@needs_gpu
def test_graphs_of_smaller_sizes_are_kept_and_a_larger_one_replaces_all():
    encoder = encoder_on_gpu()
    plain = without_graphs(encoder)
    held = []
    for seed, n in enumerate((60, 60, 20, 40, 20, 200, 60, 200)):
        tokens, above = planned(encoder, seed, n), torch.randn(n, 24, device=CUDA)
        found = one_pass(encoder, tokens, above, seed=seed)
        assert_same(found, one_pass(plain, tokens, above, seed=seed))
        held.append(len(encoder.replays))
    assert held[0] == 0
    assert held[1] == 1
    assert held[3] >= 3
    assert held[5] == 1
    assert not encoder.replays.given_up


@pytest.mark.gpu
@needs_gpu
def test_two_passes_before_a_backward_one_do_not_mix():
    encoder = encoder_on_gpu()
    plain = without_graphs(encoder)
    one, two = planned(encoder, 0), planned(encoder, 1)
    above = torch.randn(50, 24, device=CUDA)
    for step in range(3):
        for tokens in (one, two):
            one_pass(encoder, tokens, above, seed=step)
    results = []
    for each in (encoder, plain):
        each.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            first, second = each(one), each(two)
        (first * above + second * second).sum().backward()
        results.append({n: p.grad for n, p in each.named_parameters() if p.grad is not None})
    assert set(results[0]) == set(results[1])
    for name, gradient in results[0].items():
        torch.testing.assert_close(gradient, results[1][name], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@needs_gpu
def test_gradients_of_several_passes_add_up():
    encoder = encoder_on_gpu()
    plain = without_graphs(encoder)
    above = torch.randn(50, 24, device=CUDA)
    tokens = [planned(encoder, seed) for seed in (0, 1)]
    for step in range(3):
        for some in tokens:
            one_pass(encoder, some, above, seed=step)
    for each in (encoder, plain):
        each.zero_grad(set_to_none=True)
        for step, some in enumerate([*tokens, *tokens]):
            torch.manual_seed(step)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                each(some).backward(above)
    for mine, theirs in zip(encoder.parameters(), plain.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@needs_gpu
def test_a_second_backward_pass_is_refused():
    encoder = encoder_on_gpu()
    tokens, above = planned(encoder, 0), torch.randn(50, 24, device=CUDA)
    for step in range(2):
        one_pass(encoder, tokens, above, seed=step)
    for _ in range(3):  # in float32, so run call by call first and then recorded anew
        vectors = encoder(tokens)
        vectors.backward(above, retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        vectors.backward(above)


@pytest.mark.gpu
@needs_gpu
def test_weights_that_are_frozen_or_elsewhere_are_recorded_anew():
    encoder = encoder_on_gpu()
    tokens, above = planned(encoder, 0), torch.randn(50, 24, device=CUDA)
    for step in range(3):
        one_pass(encoder, tokens, above, seed=step)
    assert len(encoder.replays) == 1
    encoder.network.embeddings.word_embeddings.weight.requires_grad_(False)
    encoder.train()
    for step in range(3):
        found = one_pass(encoder, tokens, above, seed=step)
    assert "network.embeddings.word_embeddings.weight" not in found[1]
    assert_same(found, one_pass(without_graphs(encoder), tokens, above, seed=2))
    encoder.to(CUDA, torch.float64)
    assert encoder.replays is None


@pytest.mark.gpu
@needs_gpu
def test_a_recording_that_fails_costs_the_graphs_alone(monkeypatch):
    encoder = encoder_on_gpu()
    plain = without_graphs(encoder)
    tokens, above = planned(encoder, 0), torch.randn(50, 24, device=CUDA)
    one_pass(encoder, tokens, above, seed=0)
    from umpteen.model import replays

    def waits(*args, **options):
        found = encode(*args, **options)
        torch.cuda.synchronize()
        return found

    encode = replays.encode_different
    monkeypatch.setattr(replays, "encode_different", waits)
    with pytest.warns(UserWarning, match="without CUDA graphs"):
        found = one_pass(encoder, tokens, above, seed=5)
    assert encoder.replays.given_up
    assert_same(found, one_pass(plain, tokens, above, seed=5))
    assert_same(one_pass(encoder, tokens, above, seed=6), one_pass(plain, tokens, above, seed=6))


@pytest.mark.gpu
@needs_gpu
def test_passes_that_keep_too_much_are_not_filled_up():
    encoder = encoder_on_gpu()
    kept = encoder._form().kept_bytes
    assert kept == 2 * 5 * 24 * 2
    small, large = of_lengths([5, 7]), of_lengths([5, 8])
    encoder.replay(True, most_bytes=12 * kept)
    assert encoder.plan(small).sizes is not None
    assert encoder.plan(large).sizes is None


def test_there_are_no_graphs_without_a_gpu():
    encoder = TransformerEncoder(make("BertModel")).train()
    encoder.replay(True)
    assert encoder.replays is None
    encoder.replay(False)
    assert encoder.replays is None


def test_stand_ins_share_memory_and_go_again():
    network = make("BertModel")
    network.embeddings.word_embeddings.weight.requires_grad_(False)
    before = dict(network.named_parameters())
    with stand_ins(network) as leaves:
        during = dict(network.named_parameters(remove_duplicate=False))
        assert set(during) == set(before)
        for name, parameter in before.items():
            assert during[name] is not parameter
            assert during[name].data_ptr() == parameter.data_ptr()
            assert during[name].requires_grad == parameter.requires_grad
        assert len(leaves) == len(before) - 1
        ids = torch.tensor([[5, 6, 7]])
        found = torch.autograd.grad(network(input_ids=ids)[0].sum(), leaves, allow_unused=True)
    after = dict(network.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert all(parameter.grad is None for parameter in before.values())
    network(input_ids=ids)[0].sum().backward()
    trained = [p for p in network.parameters() if p.requires_grad]
    for gradient, parameter in zip(found, trained, strict=True):
        if gradient is not None:
            torch.testing.assert_close(gradient, parameter.grad)
