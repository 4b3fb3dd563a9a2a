"""Training a cross-encoder: draws, batches, a task that only the texts can solve."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import umpteen
from umpteen.ranking.reranking.pair_encoder import PairEncoder
from umpteen.ranking.reranking.token_encoder import TokenEncoder
from umpteen.training.rerank_pairs import (
    PairExamples,
    PairOptions,
    drawn_labels,
    pair_batch,
    pair_examples,
    train_pairs,
)

WORDS = ["red", "blue", "old", "tiny"]


@pytest.fixture
def encoder(tiny_bert):
    torch.manual_seed(0)
    return PairEncoder.pretrained(str(tiny_bert))


def ready_to_learn(encoder):
    """Larger random weights and no dropout: few steps then find which words are the same."""
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for parameter in encoder.encoder.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(8)


@pytest.fixture
def colours(encoder):
    """Texts that name their label; the three other labels are wrong."""
    n = 8
    own = np.arange(n) % 4
    texts = encoder.text_tokens([f"{WORDS[i]} thing" for i in own])
    right = sp.csr_matrix((np.ones(n), (np.arange(n), own)), shape=(n, 4))
    wrong = np.stack([np.delete(np.arange(4), i) for i in own])
    return PairExamples(texts, encoder.label_tokens(WORDS), right, wrong)


def test_a_cross_encoder_ranks_by_what_it_reads(encoder, colours):
    lines = []
    ready_to_learn(encoder)
    options = PairOptions(epochs=60, batch=8, negatives=3, lr=2e-3)
    train_pairs(encoder, colours, options, log=lines.append)
    losses = [float(line.rsplit(" ", 1)[1]) for line in lines]
    assert len(losses) == 60
    assert losses[-1] < 0.5 * losses[0]
    owners, rows = np.divmod(np.arange(4 * 8), 4)
    scores = encoder.scores(colours.texts, colours.labels, owners, rows).view(8, 4)
    assert (scores.argmax(dim=1).numpy() == np.arange(8) % 4).all()


def test_late_interaction_learns_which_different_words_belong_together(tiny_bert, colours):
    torch.manual_seed(0)
    encoder = TokenEncoder.pretrained(str(tiny_bert))
    ready_to_learn(encoder)
    own = (np.arange(8) + 1) % 4  # the label is the next word, and no token is shared
    right = sp.csr_matrix((np.ones(8), (np.arange(8), own)), shape=(8, 4))
    wrong = np.stack([np.delete(np.arange(4), i) for i in own])
    examples = replace(colours, right=right, wrong=wrong)
    options, lines = PairOptions(epochs=60, batch=8, negatives=3, lr=2e-3), []
    train_pairs(encoder, examples, options, log=lines.append)
    losses = [float(line.rsplit(" ", 1)[1]) for line in lines]
    assert losses[-1] < 0.5 * losses[0]
    owners, rows = np.divmod(np.arange(4 * 8), 4)
    scores = encoder.scores(colours.texts, encoder.label_inputs(WORDS), owners, rows).view(8, 4)
    assert (scores.argmax(dim=1).numpy() == own).all()


def test_training_is_the_same_with_the_same_seed_and_stops_by_time(encoder, colours, tiny_bert):
    torch.manual_seed(0)
    other = PairEncoder.pretrained(str(tiny_bert))
    other.score.load_state_dict(encoder.score.state_dict())
    for each in (encoder, other):
        torch.manual_seed(1)
        train_pairs(each, colours, PairOptions(epochs=1, batch=3), log=lambda line: None)
    assert torch.equal(encoder.score.weight, other.score.weight)
    lines = []
    train_pairs(encoder, colours, PairOptions(seconds=1e-9), log=lines.append)
    assert torch.equal(encoder.score.weight, other.score.weight)
    assert "stopped after" in lines[-1]


def test_a_batch_has_labels_first_then_different_wrong_ones(encoder, colours):
    options = PairOptions(positives=2, negatives=2)
    batch = pair_batch(encoder, colours, np.array([5, 2, 7]), options, step=3)
    assert batch.valid.tolist() == [[True, False, True, True]] * 3
    assert len(batch.pairs) == 9
    assert batch.places.tolist() == [0, 2, 3, 4, 6, 7, 8, 10, 11]
    assert batch.pairs.layout is not None
    again = pair_batch(encoder, colours, np.array([5, 2, 7]), options, step=3)
    np.testing.assert_array_equal(batch.pairs.ids, again.pairs.ids)


def test_drawn_labels_are_different_labels_of_their_row():
    rng = np.random.default_rng(0)
    targets = sp.random(30, 50, 0.1, format="csr", random_state=1)
    rows = rng.permutation(30)[:20]
    drawn = drawn_labels(targets, rows, 3, rng)
    for row, labels in zip(rows, drawn, strict=True):
        own, kept = set(targets[row].indices), [int(label) for label in labels if label >= 0]
        assert len(set(kept)) == len(kept) == min(3, len(own))
        assert set(kept) <= own


def test_wrong_candidates_are_no_labels_and_no_filters(encoder, tiny_run, tiny_data):
    model = umpteen.Predictor.load(tiny_run, device="cpu", with_ensemble=False)
    train, rows = tiny_data["train"], np.array([7, 0, 3])
    found = pair_examples(model, train, rows, encoder, 6)
    assert found.wrong.shape == (3, 6)
    filters = {tuple(pair) for pair in train.filters.tolist()}
    for row, own, wrong in zip(rows.tolist(), found.right, found.wrong.tolist(), strict=True):
        assert own.nnz
        assert -1 not in wrong
        assert len(set(wrong)) == 6
        assert not set(wrong) & set(train.targets[row].indices.tolist())
        assert not {(row, label) for label in wrong} & filters
    assert math.isinf(PairOptions.seconds)
