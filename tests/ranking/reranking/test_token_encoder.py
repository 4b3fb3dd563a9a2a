"""Late interaction: vectors of tokens, scores from stored labels, saved and read back."""

import copy

import numpy as np
import pytest
import torch

from umpteen.errors import RunError
from umpteen.ranking.reranking import token_encoder
from umpteen.ranking.reranking.token_encoder import TokenEncoder

TEXTS = ["red apple", "a green pear and a plum", "blue", "red apple"]
LABELS = ["apple", "red plum", "", "apple"]
PAIRS = (np.array([0, 1, 2, 0, 1, 3]), np.array([1, 0, 1, 0, 2, 3]))


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    torch.manual_seed(1)
    made = TokenEncoder.pretrained(str(tiny_bert)).eval()
    torch.nn.init.normal_(made.score.weigh.weight)  # not all tokens alike
    return made


def slow_score(encoder, text, label):
    """Both sides by the library's own padded network, in float64."""
    sides = []
    head = copy.deepcopy(encoder.score).double()
    network = copy.deepcopy(encoder.encoder.network).double()
    for tokenizer, words in ((encoder.text_tokenizer, text), (encoder.label_tokenizer, label)):
        ids = torch.tensor([tokenizer.encode(words).ids])
        hidden = network(input_ids=ids)[0][0]
        values = head.project(hidden)
        weights = torch.log1p(torch.exp(head.weigh(hidden)))[:, 0]
        sides.append((values / values.norm(dim=1, keepdim=True), weights / weights.sum()))
    (own, own_weights), (others, other_weights) = sides
    cosines = own @ others.T
    means = cosines.max(dim=0)[0] @ other_weights, cosines.max(dim=1)[0] @ own_weights
    return head.join(torch.stack(means))[0]


def test_batches_and_stored_labels_equal_a_slow_score_in_float64(encoder, monkeypatch):
    monkeypatch.setattr(token_encoder, "TOKENS_AT_ONCE", {"cpu": 5})
    texts, labels = encoder.text_tokens(TEXTS), encoder.label_tokens(LABELS)
    with torch.no_grad():
        wanted = [slow_score(encoder, TEXTS[t], LABELS[x]) for t, x in zip(*PAIRS, strict=True)]
        batched = encoder(encoder.batch(texts, labels, *PAIRS))
    torch.testing.assert_close(batched.double(), torch.stack(wanted), atol=1e-4, rtol=1e-5)
    scored = encoder.scores(texts, encoder.label_inputs(LABELS), *PAIRS)
    # Stored vectors are in half precision: ten times a cosine that is off by up to a thousandth.
    torch.testing.assert_close(scored, batched, atol=2e-2, rtol=0)
    none = np.zeros(0, np.int64)
    assert encoder.scores(texts, encoder.label_inputs(LABELS), none, none).shape == (0,)


def test_labels_that_come_later_are_joined(encoder):
    texts = encoder.text_tokens(TEXTS)
    both = encoder.joined(encoder.label_inputs(LABELS[:2]), encoder.label_inputs(LABELS[2:]))
    torch.testing.assert_close(
        encoder.scores(texts, both, *PAIRS),
        encoder.scores(texts, encoder.label_inputs(LABELS), *PAIRS),
        atol=2e-3,
        rtol=0,
    )


def test_every_parameter_gets_a_gradient(tiny_bert):
    own = TokenEncoder.pretrained(str(tiny_bert)).train()
    batch = own.batch(own.text_tokens(TEXTS), own.label_tokens(LABELS), *PAIRS)
    own(batch).square().sum().backward()
    lacking = [
        name
        for name, value in own.named_parameters()
        if value.grad is None and "pooler" not in name
    ]
    assert not lacking
    assert all(float(value.grad.abs().sum()) > 0 for value in own.score.parameters())


def test_it_is_read_back(encoder, tmp_path):
    encoder.save(tmp_path)
    again = TokenEncoder.load(tmp_path)
    texts, labels = encoder.text_tokens(TEXTS), encoder.label_inputs(LABELS)
    torch.testing.assert_close(
        again.scores(texts, again.label_inputs(LABELS), *PAIRS),
        encoder.scores(texts, labels, *PAIRS),
    )
    (tmp_path / "score.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match="umpteen rerank"):
        TokenEncoder.load(tmp_path)
