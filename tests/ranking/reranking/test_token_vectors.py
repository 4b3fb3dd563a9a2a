"""Comparing tokens: blocks equal a slow loop in float64, forward and backward; stored vectors."""

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking.reranking import token_vectors
from umpteen.ranking.reranking.token_vectors import StoredTokens, TokenVectors, compare

WIDTH = 5


def random_tokens(lengths, seed, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    values = torch.randn(total, WIDTH, generator=rng, dtype=dtype)
    values = torch.nn.functional.normalize(values, dim=1).requires_grad_()
    weights = (torch.rand(total, generator=rng, dtype=dtype) + 0.1).requires_grad_()
    starts = torch.from_numpy(np.cumsum([0, *lengths[:-1]]))
    return TokenVectors(values, weights, starts, np.array(lengths))


def slow(texts, labels, text_rows, label_rows):
    """One pair after another, one token after another."""
    made = []
    for text, label in zip(text_rows, label_rows, strict=True):
        a = slice(int(texts.starts[text]), int(texts.starts[text]) + texts.lengths[text])
        b = slice(int(labels.starts[label]), int(labels.starts[label]) + labels.lengths[label])
        own, others = texts.values[a], labels.values[b]
        if not len(own) or not len(others):
            made.append(torch.zeros(2, dtype=torch.float64))
            continue
        of_label = sum(w * max((x @ y for x in own), key=float)
                       for y, w in zip(others, labels.weights[b], strict=True))  # fmt: skip
        of_text = sum(w * max((x @ y for y in others), key=float)
                      for x, w in zip(own, texts.weights[a], strict=True))  # fmt: skip
        shares = labels.weights[b].sum(), texts.weights[a].sum()
        made.append(torch.stack([of_label / shares[0], of_text / shares[1]]))
    return torch.stack(made)


@pytest.mark.parametrize("at_once", [1, 200, 1 << 24])
def test_blocks_equal_the_slow_loop_forward_and_backward(at_once, monkeypatch):
    monkeypatch.setattr(token_vectors, "NUMBERS_AT_ONCE", at_once)
    texts, labels = random_tokens([3, 1, 7, 2], 1), random_tokens([2, 5, 1], 2)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 4, 11), rng.integers(0, 3, 11)
    gradient = torch.from_numpy(rng.normal(size=(11, 2)))
    leaves = [texts.values, texts.weights, labels.values, labels.weights]
    made, wanted = compare(texts, labels, *pairs), slow(texts, labels, *pairs)
    torch.testing.assert_close(made, wanted, atol=1e-12, rtol=1e-12)
    for own, other in zip(
        torch.autograd.grad(made, leaves, gradient),
        torch.autograd.grad(wanted, leaves, gradient),
        strict=True,
    ):
        torch.testing.assert_close(own, other, atol=1e-12, rtol=1e-12)


def test_a_text_or_label_without_tokens_scores_0():
    texts, labels = random_tokens([2, 0], 1), random_tokens([0, 3], 2)
    pairs = np.array([0, 1, 0]), np.array([0, 1, 1])
    made = compare(texts, labels, *pairs)
    torch.testing.assert_close(made, slow(texts, labels, *pairs))
    assert made[:2].abs().sum() == 0
    none = np.zeros(0, np.int64)
    assert compare(texts, labels, none, none).shape == (0, 2)


def stored(lengths, seed):
    made = random_tokens(lengths, seed, torch.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = made.values.detach().numpy().astype(np.float16)
    return StoredTokens(values, made.weights.detach().numpy(), offsets)


def test_stored_tokens_are_selected_joined_and_read_back(tmp_path):
    first, second = stored([2, 3, 1], 1), stored([4], 2)
    both = first.joined(second)
    assert len(both) == 4
    chosen = both.select(np.array([3, 1]), torch.device("cpu"))
    np.testing.assert_array_equal(chosen.lengths, [4, 3])
    np.testing.assert_array_equal(
        chosen.values.numpy(), np.concatenate([second.values, first.values[2:5]]).astype(np.float32)
    )
    assert first.joined(stored([], 1)) is first
    both.save(tmp_path)
    again = StoredTokens.load(tmp_path, 4)
    np.testing.assert_array_equal(again.values, both.values)
    np.testing.assert_array_equal(again.offsets, both.offsets)
    with pytest.raises(RunError, match="umpteen rerank"):
        StoredTokens.load(tmp_path, 5)
    (tmp_path / "token_vectors.npy").write_bytes(b"x")
    with pytest.raises(RunError, match="umpteen rerank"):
        StoredTokens.load(tmp_path, 4)
