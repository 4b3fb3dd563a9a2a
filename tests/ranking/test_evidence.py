"""Texts without evidence: what counts as none, and the reason that is given."""

import numpy as np
import pytest

from umpteen.ranking.adjustments import EMPTY, UNKNOWN, missing_evidence, similarity_floor
from umpteen.types import TopK


def test_a_text_needs_a_known_word_or_a_similar_example():
    texts = ["known", "unknown, near", "unknown, far", " \n", ""]
    n_terms = np.array([2, 0, 0, 0, 0])
    similarity = np.array([0.1, 0.5, 0.49, 0.9, np.nan], np.float32)
    found = missing_evidence(texts, n_terms, similarity, 0.5)
    assert found == [None, None, UNKNOWN, EMPTY, EMPTY]


def test_without_examples_words_decide():
    found = missing_evidence(["a", "b", ""], np.array([1, 0, 0]), None, 0.5)
    assert found == [None, UNKNOWN, EMPTY]


def test_without_a_lexical_scorer_only_an_empty_text_lacks_evidence():
    similarity = np.array([-0.5, 0.9], np.float32)
    assert missing_evidence(["far", "  "], None, similarity, 0.5) == [None, EMPTY]
    assert missing_evidence(["far", ""], None, None, 0.5) == [None, EMPTY]


def test_an_example_that_was_not_found_is_not_similar():
    similarity = np.array([-np.inf], np.float32)
    assert missing_evidence(["zz"], np.array([0]), similarity, 0.5) == [UNKNOWN]


def test_the_floor_is_reached_by_nearly_all_validation_texts():
    scores = np.random.default_rng(1).random((997, 3)).astype(np.float32)
    scores = -np.sort(-scores, axis=1)
    near = TopK(np.zeros((997, 3), np.int64), scores)
    floor = similarity_floor(near)
    assert 0.98 <= (scores[:, 0] >= floor).mean() < 1.0
    assert floor == pytest.approx(np.sort(scores[:, 0])[9], abs=0.02)


def test_texts_without_neighbours_do_not_count_towards_the_floor():
    scores = np.array([[-np.inf], [0.5], [0.7]], np.float32)
    assert 0.5 <= similarity_floor(TopK(np.array([[-1], [0], [0]]), scores)) <= 0.51
    for n in (0, 3):
        none = TopK(np.full((n, 1), -1), np.full((n, 1), -np.inf, np.float32))
        assert similarity_floor(none) == -np.inf
    assert similarity_floor(TopK(np.zeros((3, 0), np.int64), np.zeros((3, 0)))) == -np.inf
