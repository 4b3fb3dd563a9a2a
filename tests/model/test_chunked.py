"""Texts in chunks against a loop over texts and chunks, and what must stay as it was."""

import dataclasses

import numpy as np
import pytest
import torch

from umpteen.model.chunked import ChunkedEncoder
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.pretrained import load_network
from umpteen.model.transformer import TransformerEncoder
from umpteen.types import Ragged

V = 60


def ragged(texts, *, tensor=False):
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    ids = np.array([i for text in texts for i in text], np.int32)
    return Ragged(torch.from_numpy(ids) if tensor else ids, offsets)


def texts_of(lengths, before, behind):
    """Texts of their own tokens between special ones, which differ from all others."""
    rng = np.random.default_rng(3)
    return [[*range(1, 1 + before), *rng.integers(9, V, n).tolist(), *range(5, 5 + behind)]
            for n in lengths]  # fmt: skip


def slowly(inner, text, max_tokens, before, behind):
    """The definition: the fewest chunks, of equal size but for a token, and their mean."""
    own = text[before : len(text) - behind]
    room = max_tokens - before - behind
    count = max(1, (len(own) + room - 1) // room)
    total = 0.0
    for number in range(count):
        first, last = number * len(own) // count, (number + 1) * len(own) // count
        part = own[first:last]
        assert len(part) <= room
        chunk = text[:before] + part + text[len(text) - behind :]
        share = len(part) / len(own) if count > 1 else 1.0
        total = total + inner(ragged([chunk]))[0] * share
    return total


def bag():
    torch.manual_seed(1)
    encoder = BagEncoder(torch.randn(V, 8, dtype=torch.float64), hidden=6).double()
    with torch.no_grad():
        encoder.outer.weight.normal_()
    return encoder


def transformer(tiny_bert):
    return TransformerEncoder(load_network(str(tiny_bert))).double()


LENGTHS = (0, 1, 5, 6, 7, 13, 40, 2)


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 1), (2, 0), (0, 3)])
@pytest.mark.parametrize("kind", ["bag", "transformer"])
@pytest.mark.parametrize("tensor", [False, True])
def test_vectors_and_gradients_are_those_of_a_loop(kind, before, behind, tensor, tiny_bert):
    inner = (bag() if kind == "bag" else transformer(tiny_bert)).eval()
    lengths = LENGTHS if before + behind else LENGTHS[1:]
    texts = texts_of(lengths, before, behind)
    limit = 6 + before + behind
    encoder = ChunkedEncoder(inner, max_tokens=limit, before=before, behind=behind)
    factors = torch.randn(len(texts), inner.dim, dtype=torch.float64)
    found = encoder(ragged(texts, tensor=tensor))
    expected = torch.stack([slowly(inner, text, limit, before, behind) for text in texts])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = []
    for result in (found, expected):
        inner.zero_grad()
        (result * factors).sum().backward()
        gradients.append({n: p.grad.to_dense().clone() for n, p in inner.named_parameters()
                          if p.grad is not None})  # fmt: skip
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-8, atol=1e-10)


def test_texts_of_one_chunk_keep_their_vectors_to_the_bit(tiny_bert):
    inner = TransformerEncoder(load_network(str(tiny_bert))).eval()
    texts = texts_of((1, 4, 9), 1, 1)
    encoder = ChunkedEncoder(inner, max_tokens=11, before=1, behind=1)
    with torch.no_grad():
        assert torch.equal(encoder(ragged(texts)), inner(ragged(texts)))
        # Beside a long text, too: its weight is exactly one.
        chunked = ChunkedEncoder(bag().float(), max_tokens=11).eval()
        long = texts_of((9, 40, 3), 0, 0)
        alone = chunked.inner(ragged([long[0], long[2]]))
        assert torch.equal(chunked(ragged(long))[[0, 2]], alone)


def test_a_plan_made_ahead_gives_the_same(tiny_bert):
    inner = TransformerEncoder(load_network(str(tiny_bert))).eval()
    encoder = ChunkedEncoder(inner, max_tokens=8, before=1, behind=1)
    tokens = ragged(texts_of((1, 30, 7), 1, 1))
    laid_out = dataclasses.replace(tokens, layout=encoder.layout(tokens))
    assert laid_out.layout.tokens.layout is not None
    with torch.no_grad():
        assert torch.equal(encoder(laid_out), encoder(tokens))


def test_an_encoder_without_a_plan_stays_without():
    assert ChunkedEncoder(bag(), max_tokens=8).layout is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_as_on_the_host(tiny_bert):
    inner = TransformerEncoder(load_network(str(tiny_bert))).eval()
    encoder = ChunkedEncoder(inner, max_tokens=8, before=1, behind=1)
    tokens = ragged(texts_of((1, 30, 7, 100), 1, 1))
    with torch.no_grad():
        expected = encoder(tokens)
        encoder.cuda()
        for ids in (tokens.ids, torch.from_numpy(tokens.ids).cuda()):
            found = encoder(Ragged(ids, tokens.offsets))
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)
            assert torch.equal(found, encoder(Ragged(ids, tokens.offsets)))
        laid_out = dataclasses.replace(tokens, layout=encoder.layout(tokens))
        torch.testing.assert_close(encoder(laid_out).cpu(), expected, rtol=1e-3, atol=1e-4)
