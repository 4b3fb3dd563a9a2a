"""Weights of corrections are kept between starts, for exactly what they were fitted on."""

import json
import shutil

import numpy as np
import pytest

import umpteen
from umpteen.ranking import correction_cache, correction_fitting
from umpteen.ranking.correction_cache import FILE


@pytest.fixture
def run(tiny_run, tmp_path, monkeypatch):
    """A run with 160 corrections that follow a rule, and the file of their weights."""
    monkeypatch.setattr(correction_cache, "MIN_CACHED", 32)
    run = shutil.copytree(tiny_run, tmp_path / "run")
    model = umpteen.Predictor.load(run, device="cpu")
    ids, titles = model.labels.ids, model.labels.titles
    pairs = [
        (f"{word} {title}", [ids[(row + 7) % len(ids)]])
        for word in ("about", "near", "with", "under")
        for row, title in enumerate(titles)
    ]
    model.add_examples(*map(list, zip(*pairs, strict=True)))
    assert model.snapshot().corrections is not None
    return run


@pytest.fixture
def fits(monkeypatch):
    """The numbers of corrections that weights are fitted with."""
    done, own = [], correction_fitting.fit_corrections

    def fit(ranker, snapshot, n, *given):
        done.append(n)
        return own(ranker, snapshot, n, *given)

    monkeypatch.setattr(correction_fitting, "fit_corrections", fit)
    return done


def load(run):
    return umpteen.Predictor.load(run, device="cpu")


def test_a_restart_reads_the_weights_and_predicts_the_same(run, fits):
    kept = load(run)
    first = kept.predict(["beyond river", "about apple"], 5)
    assert not fits
    (run / "cache" / FILE).unlink()
    fitted = load(run)
    again = fitted.predict(["beyond river", "about apple"], 5)
    assert len(fits) == 1
    np.testing.assert_array_equal(first.rows, again.rows)
    np.testing.assert_array_equal(first.scores, again.scores)
    one, two = kept.snapshot().corrections, fitted.snapshot().corrections
    assert one.variant.as_json() == two.variant.as_json()
    np.testing.assert_array_equal(one.counts, two.counts)


def test_that_corrections_add_nothing_is_kept_too(run, fits):
    file = run / "cache" / FILE
    value = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**value, "weights": None, "variant": None}), "utf-8")
    assert load(run).snapshot().corrections is None
    assert not fits


def test_other_corrections_are_fitted_again(run, fits):
    model = load(run)
    text = f"about {model.labels.titles[0]}"
    model.add_examples([text], [[model.labels.ids[3]]])  # another label for a stored text
    assert load(run).snapshot().corrections is not None
    assert fits


def test_another_ensemble_is_fitted_again(run, fits):
    file = run / "ensemble" / "ensemble.json"
    value = json.loads(file.read_text("utf-8"))
    value["variants"][0]["tail_boost"] += 0.25
    file.write_text(json.dumps(value), "utf-8")
    load(run).snapshot()
    assert fits


@pytest.mark.parametrize(
    "damage", [b"{", b"[]", b"{}", b"\xff", None], ids=["cut", "list", "empty", "bytes", "negative"]
)
def test_a_damaged_file_is_ignored(damage, run, fits):
    file = run / "cache" / FILE
    if damage is None:
        value = json.loads(file.read_text("utf-8"))
        value["weights"][0] = -1.0
        damage = json.dumps(value).encode()
    file.write_bytes(damage)
    assert load(run).snapshot().corrections is not None
    assert len(fits) == 1


def test_a_folder_that_cannot_be_written_to_is_no_error(run, fits):
    shutil.rmtree(run / "cache")
    (run / "cache").write_text("a file in its place", "utf-8")
    assert load(run).snapshot().corrections is not None
    assert len(fits) == 1
