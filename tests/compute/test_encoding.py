import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from umpteen.compute.encoding import encode_all
from umpteen.data.tokens import TokenStore
from umpteen.errors import UmpteenError


def make_store(n=40, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, n)
    ids = rng.integers(0, 99, lengths.sum()).astype(np.uint16)
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def summary(tokens):
    """Sum and length of each text, exact in float32."""
    texts = np.split(tokens.ids, tokens.offsets[1:-1])
    return torch.tensor([[float(t.sum()), float(len(t))] for t in texts])


class WatchShape(TorchDispatchMode):
    """Notes the memory of every tensor of one shape."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.storages = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and tuple(result.shape) == self.shape:
            self.storages[result.untyped_storage().data_ptr()] = result  # held: no address twice
        return result


@pytest.mark.parametrize("chunk", [1, 7, 30, 10**6])
def test_every_text_gets_its_own_vector_whatever_the_chunk(chunk):
    store = make_store()
    result = encode_all(summary, store, tokens_per_chunk=chunk)
    assert torch.equal(result, summary(store.take(np.arange(40))))


def test_chunks_stay_within_the_padded_tokens():
    sizes = []

    def watch(tokens):
        sizes.append(len(tokens) * int(np.diff(tokens.offsets).max()))
        return summary(tokens)

    encode_all(watch, make_store(), tokens_per_chunk=30)
    assert max(sizes) <= 30
    assert len(sizes) > 3


def test_progress_ends_with_everything():
    calls = []
    encode_all(summary, make_store(), tokens_per_chunk=50, progress=lambda *at: calls.append(at))
    done = [d for d, _ in calls]
    assert done == sorted(set(done))
    assert calls[-1] == (40, 40)


def test_running_out_of_memory_halves_the_chunk_and_goes_on():
    tried = []

    def small(tokens):
        tried.append(len(tokens))
        if len(tokens) > 3:
            raise torch.OutOfMemoryError("full")
        return summary(tokens)

    store = make_store()
    result = encode_all(small, store, tokens_per_chunk=400)
    assert max(tried) > 3
    assert torch.equal(result, summary(store.take(np.arange(40))))


def test_a_text_that_never_fits_is_an_error_that_says_what_to_do():
    def never(tokens):
        raise torch.OutOfMemoryError("full")

    with pytest.raises(UmpteenError, match="smaller data.max_tokens"):
        encode_all(never, make_store(), tokens_per_chunk=100)


def test_no_text_is_an_error():
    with pytest.raises(UmpteenError, match="no text to encode"):
        encode_all(summary, make_store(0))


def test_vectors_are_float32_and_may_be_trained_on():
    weight = torch.randn(2, 2, requires_grad=True)

    def half(tokens):
        assert torch.is_inference_mode_enabled()
        return (summary(tokens) @ weight).bfloat16()

    result = encode_all(half, make_store())
    assert result.dtype == torch.float32
    assert not result.requires_grad
    (result @ weight).sum().backward()  # tensors of inference mode would refuse


def test_vectors_of_all_texts_are_held_once():
    """Twice is gigabytes too many for millions of texts."""
    watched = WatchShape((40, 2))
    with watched:
        result = encode_all(summary, make_store(), tokens_per_chunk=30)
    assert result.shape == watched.shape
    assert len(watched.storages) == 1
