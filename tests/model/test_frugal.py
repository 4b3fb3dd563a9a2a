import numpy as np
import pytest
import torch

from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.frugal.convolution import ConvolutionEncoder
from umpteen.model.frugal.tables import random_table, train_tokenizer
from umpteen.types import Ragged

TEXTS = [[3, 1, 3], [7], [2, 9, 4, 5, 0]]


def ragged(texts):
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    return Ragged(np.array([i for t in texts for i in t], np.int32), offsets)


def shake(module):
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape))
    return module.double().eval()


@pytest.mark.parametrize(
    "make",
    [lambda t: BagEncoder(t), lambda t: BagEncoder(t, hidden=0), lambda t: ConvolutionEncoder(t)],
)
def test_a_frugal_encoder_starts_as_the_plain_mean_of_token_vectors(make):
    table = torch.randn(10, 6)
    result = make(table).eval()(ragged(TEXTS))
    expected = torch.stack([table[text].mean(dim=0) for text in TEXTS])
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("hidden", [0, 4])
def test_bag_equals_its_formula(hidden):
    encoder = shake(BagEncoder(torch.randn(10, 6), hidden=hidden))
    result = encoder(ragged(TEXTS))
    for text, vector in zip(TEXTS, result, strict=True):
        scale = encoder.weights[text, 0].exp()
        mean = sum(w * encoder.table[t] for w, t in zip(scale, text, strict=True)) / scale.sum()
        if hidden:
            inner = (encoder.inner.weight @ mean + encoder.inner.bias).clamp(min=0)
            mean = mean + encoder.outer.weight @ inner + encoder.outer.bias
        torch.testing.assert_close(vector, mean)


def test_bag_does_not_feel_the_order_of_words_and_convolution_does():
    forth, back = ragged([[1, 2, 3, 4]]), ragged([[4, 3, 2, 1]])
    bag = shake(BagEncoder(torch.randn(10, 6), hidden=3))
    torch.testing.assert_close(bag(forth), bag(back))
    convolution = shake(ConvolutionEncoder(torch.randn(10, 6), channels=4))
    assert not torch.allclose(convolution(forth), convolution(back), atol=1e-3)


def test_convolution_equals_its_description_position_by_position():
    encoder = shake(ConvolutionEncoder(torch.randn(10, 6), channels=4, widths=(1, 3)))
    for text, vector in zip(TEXTS, encoder(ragged(TEXTS)), strict=True):
        tokens = encoder.table[text]  # (T, D)
        pooled = []
        for place in range(len(text)):
            views = []
            for width, window in zip(encoder.widths, encoder.windows, strict=True):
                # The window ends at the position; before the text there is nothing.
                seen = [place - width + 1 + i for i in range(width)]
                views.append(
                    window.bias
                    + sum(window.weight[:, :, i] @ tokens[p] for i, p in enumerate(seen) if p >= 0)
                )
            views = torch.stack(views)
            mixed = torch.softmax(encoder.attention_query(views) @ views.T / 4**0.5, dim=1)
            pooled.append(torch.relu(views + mixed @ views))
        best = torch.stack(pooled).max(dim=0).values.flatten()
        torch.testing.assert_close(vector, tokens.mean(dim=0) + encoder.mix(best))


def padded_convolution(encoder, texts):
    """The plain expression: each text padded by itself, ``conv1d``, attention as products."""
    rows = []
    for text in texts:
        tokens = torch.nn.functional.embedding(torch.tensor(text), encoder.table)  # (T, D)
        seen = [window(tokens.T)[:, : len(text)].T for window in encoder.windows]
        views = torch.stack(seen, dim=1)  # (T, W, channels)
        scores = encoder.attention_query(views) @ views.mT / encoder.channels**0.5
        views = torch.relu(views + torch.softmax(scores, dim=-1) @ views)
        rows.append(tokens.mean(dim=0) + encoder.mix(views.amax(dim=0).flatten()))
    return torch.stack(rows)


@pytest.mark.parametrize("widths", [(1, 2, 3), (4,), (3, 1, 5)])
@pytest.mark.parametrize("texts", [TEXTS, [[6]], [[5, 5, 5, 5], [1], [2, 2]]])
def test_unpadded_convolution_equals_padded_windows_forward_and_backward(widths, texts):
    encoder = shake(ConvolutionEncoder(torch.randn(10, 6), channels=3, widths=widths))
    direction = torch.randn(len(texts), 6, dtype=torch.float64)
    found, expected = [], []
    for results, vectors in (
        (found, encoder(ragged(texts))),
        (expected, padded_convolution(encoder, texts)),
    ):
        encoder.zero_grad()
        (vectors * direction).sum().backward()
        gradients = [parameter.grad.to_dense() for parameter in encoder.parameters()]
        results.extend([vectors.detach(), *gradients])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_table_given_is_copied_not_kept():
    table = torch.randn(10, 6)
    encoder = BagEncoder(table)
    with torch.no_grad():
        encoder.table.zero_()
    assert table.abs().sum() > 0


def test_dropout_acts_in_training_alone():
    encoder = BagEncoder(torch.randn(10, 64), dropout=0.5)
    assert not torch.equal(encoder(ragged(TEXTS)), encoder(ragged(TEXTS)))
    encoder.eval()
    assert torch.equal(encoder(ragged(TEXTS)), encoder(ragged(TEXTS)))


def test_random_tables_have_unit_expected_length_and_follow_the_generator():
    def draw(seed):
        return random_table(2000, 16, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert abs(float(draw(1).square().sum(dim=1).mean()) - 1) < 0.05


def test_a_tokenizer_learned_from_texts_knows_them(tiny_data):
    texts = tiny_data["train"].texts()
    tokenizer = train_tokenizer(texts, vocabulary=500)
    assert (tokenizer.token_to_id("[PAD]"), tokenizer.token_to_id("[UNK]")) == (0, 1)
    assert tokenizer.get_vocab_size() <= 500
    encoded = [tokenizer.encode(text) for text in texts]
    assert all(1 not in e.ids and 0 not in e.ids for e in encoded)
    assert tokenizer.encode("RED").ids == tokenizer.encode("red").ids
    again = train_tokenizer(texts, vocabulary=500)
    assert [e.ids for e in encoded] == [again.encode(text).ids for text in texts]
