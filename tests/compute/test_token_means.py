"""Means of token vectors against loops and against the plain expression, in float64."""

import numpy as np
import pytest
import torch

from umpteen.compute.token_means import plain_token_means, token_means

SHAPES = [(1, 1, 1, 1), (1, 3, 2, 5), (7, 13, 5, 3), (31, 500, 17, 9), (50, 4, 33, 20)]
"""Texts, vocabulary, size, longest text."""


def some_texts(texts: int, vocabulary: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(texts)
    lengths = rng.integers(1, longest + 1, texts)
    ids = rng.integers(0, vocabulary, lengths.sum())
    return torch.from_numpy(ids), torch.from_numpy(np.append(0, np.cumsum(lengths)))


def tables(vocabulary: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(vocabulary + dim)
    table = torch.randn(vocabulary, dim, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(vocabulary, 1, dtype=torch.float64, requires_grad=True)
    return table, weights


@pytest.mark.parametrize(("texts", "vocabulary", "dim", "longest"), SHAPES)
@pytest.mark.parametrize("function", [token_means, plain_token_means])
@pytest.mark.parametrize("graph", [True, False])
def test_means_are_those_of_a_loop(function, graph, texts, vocabulary, dim, longest):
    ids, offsets = some_texts(texts, vocabulary, longest)
    table, weights = tables(vocabulary, dim)
    with torch.set_grad_enabled(graph):
        found = function(table, weights, ids, offsets)
    assert found.requires_grad == graph
    for row, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        own = ids[start:stop]
        shares = weights[own, 0].softmax(dim=0)
        torch.testing.assert_close(found[row], shares @ table[own], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("texts", "vocabulary", "dim", "longest"), SHAPES)
def test_gradients_are_those_of_the_plain_expression(texts, vocabulary, dim, longest):
    ids, offsets = some_texts(texts, vocabulary, longest)
    table, weights = tables(vocabulary, dim)
    slopes = torch.randn(texts, dim, dtype=torch.float64)
    found = torch.autograd.grad(
        (slopes * token_means(table, weights, ids, offsets)).sum(), (table, weights)
    )
    wanted = torch.autograd.grad(
        (slopes * plain_token_means(table, weights, ids, offsets)).sum(), (table, weights)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.to_dense(), theirs.to_dense(), rtol=1e-11, atol=1e-12)


def test_a_gradient_names_each_token_once_in_order():
    ids, offsets = torch.tensor([4, 4, 2, 9, 2]), torch.tensor([0, 2, 5])
    table, weights = tables(11, 3)
    token_means(table, weights, ids, offsets).sum().backward()
    for parameter in (table, weights):
        assert parameter.grad is not None
        assert parameter.grad._indices()[0].tolist() == [2, 4, 9]


def test_no_texts_have_no_means():
    table, weights = tables(3, 2)
    empty = torch.zeros(0, dtype=torch.int64)
    assert token_means(table, weights, empty, torch.zeros(1, dtype=torch.int64)).shape == (0, 2)
