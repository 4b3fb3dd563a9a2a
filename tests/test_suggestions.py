"""Texts to label next: expected errors, and the greedy choice against brute force."""

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen import suggestions
from umpteen.errors import ConfigError
from umpteen.suggestions import choose, expected_errors, suggest
from umpteen.types import TopK


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


def test_expected_errors_are_those_of_coins():
    rng = np.random.default_rng(2)
    chances = np.sort(rng.random((3, 6)).astype(np.float32), axis=1)[:, ::-1]
    rows = np.stack([rng.permutation(9)[:6] for _ in range(3)])
    limits = rng.random(9)
    truth = rng.random((40_000, 3, 6)) < chances
    wrong = truth != (chances >= limits[rows])
    expected = expected_errors(TopK(rows, chances), limits)
    assert expected == pytest.approx(wrong.sum(axis=2).mean(axis=0), abs=0.03)


def brute_gain(chosen, errors, near):
    return sum(
        error * max((near[row][place] for row in chosen), default=0.0)
        for place, error in enumerate(errors)
    )


def test_every_choice_adds_the_most():
    rng = np.random.default_rng(5)
    errors = rng.random(23)
    vectors = rng.normal(size=(23, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = np.clip(vectors.astype(float) @ vectors.T, 0, 1) ** suggestions.SHARPNESS
    np.fill_diagonal(near, 1.0)
    rows, gains = choose(errors, vectors, 7)
    for place in range(7):
        before = rows[:place].tolist()
        base = brute_gain(before, errors, near)
        best = max(brute_gain([*before, row], errors, near) - base for row in range(23))
        own = brute_gain([*before, rows[place]], errors, near) - base
        assert own == pytest.approx(best, rel=1e-5)
        assert gains[place] == pytest.approx(best, rel=1e-5)
    assert (np.diff(gains) <= 1e-9).all()


def test_a_second_text_of_the_same_kind_waits():
    # Two near texts with many errors, one far with few: one of the near ones, then the far one.
    vectors = np.array([[1, 0], [0.999, 0.0447], [0, 1]], np.float32)
    rows, _ = choose(np.array([2.0, 2.0, 1.0]), vectors, 3)
    assert rows[0] in (0, 1)
    assert rows[1] == 2


def test_suggestions_carry_what_is_predicted(model, tiny_data):
    texts = list(tiny_data["test"].texts())
    found = suggest(model, texts, 6)
    assert len(found) == 6
    assert len({each.position for each in found}) == 6
    gains = [each.gain for each in found]
    assert gains == sorted(gains, reverse=True)
    top = model.predict(texts, 20)
    above = model.predict(texts, 20, threshold="auto")
    for each in found:
        assert each.text == texts[each.position]
        assert [label["id"] for label in each.labels] == top.ids[each.position]
        assert each.as_json()["labels"] == above.ids[each.position]
        assert each.gain >= each.expected_errors - 1e-9 or each is not found[0]


def test_the_number_of_texts_at_once_does_not_matter(monkeypatch, model, tiny_data):
    texts = [*tiny_data["test"].texts(), *tiny_data["train"].texts()]
    whole = [each.position for each in suggest(model, texts, 8)]
    monkeypatch.setattr(suggestions, "TEXTS_AT_ONCE", 7)
    assert [each.position for each in suggest(model, iter(texts), 8)] == whole


def test_a_small_pool_keeps_the_texts_with_the_most_errors(monkeypatch, model, tiny_data):
    texts = list(tiny_data["test"].texts())
    everything = {each.position: each.expected_errors for each in suggest(model, texts, 99)}
    monkeypatch.setattr(suggestions, "MAX_POOL", 4)
    monkeypatch.setattr(suggestions, "TEXTS_AT_ONCE", 3)
    few = suggest(model, texts, 4)
    worst = sorted(everything.values(), reverse=True)[:4]
    assert sorted((each.expected_errors for each in few), reverse=True) == pytest.approx(worst)


def test_equal_texts_are_suggested_once_and_nothing_gives_nothing(model):
    assert len(suggest(model, ["same words"] * 5, 5)) == 1
    assert suggest(model, [], 5) == []


def test_what_is_missing_is_a_sentence(tiny_data, tmp_path, model):
    with pytest.raises(ConfigError, match="at least 1 text"):
        suggest(model, ["a"], 0)
    plain = fit(tiny_data, tmp_path / "run", "train.epochs=1")
    with pytest.raises(ConfigError, match="umpteen fit-ensemble"):
        suggest(plain, ["a"])
