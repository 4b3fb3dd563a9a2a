"""Copies of texts in which some words are near neighbours of the old ones."""

import numpy as np

from umpteen.data.augment.synonyms import nearest_words, replace_words

WORDS = {"red": [1, 0.1], "crimson": [1, 0.0], "boat": [0.1, 1], "ship": [0.0, 1]}


def vectors_of(words):
    return np.array([WORDS.get(word, [-1, -1]) for word in words], np.float32)


def test_words_become_their_nearest_and_the_rest_stays():
    titles = ["Red boat, 12 (to x_y)!", "crimson ship"]
    new, contents = replace_words(titles, None, vectors_of, share=1.0, seed=1)
    assert contents is None
    assert new[0].endswith(", 12 (to x_y)!")
    for text in new:
        first, second = text.split(",")[0].split()
        assert {first, second} <= set(WORDS)
    assert new[0].split()[0] != "Red"


def test_nothing_is_replaced_at_a_share_of_nothing():
    titles, contents = ["red boat"], ["ship of crimson"]
    assert replace_words(titles, contents, vectors_of, share=0.0, seed=1) == (titles, contents)


def test_the_seed_decides_and_contents_stay_contents():
    titles, contents = ["red boat ship"] * 20, ["crimson"] * 20
    one, two, other = (
        replace_words(titles, contents, vectors_of, share=0.5, seed=s) for s in (1, 1, 2)
    )
    assert one == two != other
    assert all(len(text.split()) == 1 for text in one[1])


def test_texts_without_words_are_left_alone():
    assert replace_words(["1", ""], None, vectors_of, share=1.0, seed=0) == (["1", ""], None)


def test_nearest_words_are_the_highest_cosines():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(37, 6)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    expected = np.argsort(-cosines, axis=1)[:, :5]
    np.testing.assert_array_equal(nearest_words(vectors), expected)
    assert nearest_words(vectors[:2]).tolist() == [[1], [0]]
