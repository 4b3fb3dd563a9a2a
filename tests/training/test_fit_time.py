"""Time limits of the ensemble's fit: texts that can be read, parts that are left out."""

import shutil

import numpy as np
import pytest
from small_runs import SETTINGS

import umpteen
from umpteen.config.loading import load_config
from umpteen.ranking.lexical import one_vs_rest
from umpteen.run_folder import RunFolder
from umpteen.training import fit_time
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.fit_time import (
    ALONE_SHARE,
    FOLDED_SHARE,
    LEARNING_SHARE,
    MIN_TEXTS,
    FitTime,
    folds_in_time,
    readable_rows,
    share_before_folds,
)


class Reader:
    """Takes a given time for a character, by a clock of its own."""

    def __init__(self, monkeypatch, each):
        self.now, self.each = 0.0, each
        monkeypatch.setattr(fit_time.time, "monotonic", lambda: self.now)

    def __call__(self, texts):
        self.now += self.each * sum(map(len, texts))


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, 1000), (12.0, 1200), (40.0, 4000)])
def test_as_many_texts_are_read_as_there_is_time_for(seconds, expected, monkeypatch):
    texts = ["x" * 10] * 4000
    read = Reader(monkeypatch, 0.001)  # 40 seconds for all
    rows = readable_rows(texts, read, seconds=seconds, seed=1)
    assert abs(len(rows) - expected) <= 1
    assert (np.diff(rows) > 0).all()
    assert read.now < 10  # a sample


def test_the_sample_of_many_short_texts_is_larger(monkeypatch):
    sizes = []
    readable_rows(["abc"] * 100_000, lambda some: sizes.append(len(some)), seconds=1.0, seed=1)
    assert max(sizes) == 2000


def test_few_texts_are_always_read(monkeypatch):
    rows = readable_rows(["abc"] * 30, Reader(monkeypatch, 1.0), seconds=0.0, seed=1)
    assert rows.tolist() == list(range(30))
    many = readable_rows(["abc"] * 5000, Reader(monkeypatch, 1.0), seconds=0.0, seed=1)
    assert len(many) == MIN_TEXTS


def test_a_limit_and_its_parts(monkeypatch):
    clock = Reader(monkeypatch, 1.0)
    limit = FitTime(100.0, strict=True)
    clock.now = 20.0
    assert limit.left() == 80.0
    assert limit.part(0.5).until == 60.0
    assert limit.allows(80.0)
    assert not limit.allows(81.0)
    late = FitTime(100.0, strict=True, slack=5.0)
    assert late.allows(85.0)
    assert not late.allows(86.0)
    assert late.part(0.5).slack == 5.0
    assert FitTime(0.0, strict=False).allows(1e9)
    assert FitTime(0.0, strict=True).left() == 0.0


def test_without_time_the_ensemble_has_prior_weights(tiny_data, tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    said = []
    settings = load_config(overrides=[*SETTINGS, "validation.share=0.4", "ensemble.min_queries=5"])
    model = fit_ensemble_of_run(
        RunFolder(run),
        tiny_data,
        settings,
        device="cpu",
        log=said.append,
        again=True,
        limit=FitTime(1.0, strict=True),
    )
    assert "too little time" in model.fitted_on
    assert any(line.startswith("No time to fit weights") for line in said)
    top = umpteen.Predictor.load(run, device="cpu").predict("apple pie", 3)
    assert np.isfinite(top.scores).all()


def test_character_ngrams_are_left_out_where_there_is_no_time(monkeypatch):
    said = []
    clock = iter(np.arange(0.0, 1e6, 1.0))  # a second passes at every look
    monkeypatch.setattr(one_vs_rest.time, "monotonic", lambda: next(clock))
    texts = ["some words of a text"] * 20_000
    assert not one_vs_rest._time_for_characters(texts, 3.0, said.append)
    assert one_vs_rest._time_for_characters(texts, 100.0, said.append)
    assert len(said) == 1
    assert "without character n-grams: reading them takes about" in said[0]


PLAN = {"most": 5, "fold": 8.0, "texts": 112, "fit": 0.01, "variants": 6}


@pytest.mark.parametrize("done", range(5))
@pytest.mark.parametrize("seconds", [0.0, 7.9, 9.2, 18.3, 30.0, 44.5, 60.0, 200.0])
def test_folds_and_their_fits_end_in_time_and_leave_none_that_would_fit(done, seconds):
    planned = folds_in_time(seconds, done=done, **PLAN)

    def cost(n, variants):
        return (n - done) * 8.0 + n * 112 * 0.01 * variants

    if planned > done:
        assert cost(planned, 1) <= seconds
        assert planned * 112 <= 300 + 112 or cost(planned, 6) <= seconds
    if planned < 5:  # one more takes too long: for every variant, or for one where texts are few
        assert cost(planned + 1, 6) > seconds
        assert planned * 112 >= 300 or cost(planned + 1, 1) > seconds


def test_few_texts_are_a_reason_for_more_folds_than_all_variants_allow():
    tiny = {**PLAN, "texts": 6, "fit": 1.0}
    assert folds_in_time(70.0, done=0, **tiny) == 5  # 14 s a fold and its fit of one variant
    assert folds_in_time(20.0, done=0, **tiny) == 1
    assert folds_in_time(13.0, done=0, **tiny) == 0
    assert folds_in_time(0.0, done=3, **tiny) == 3


def test_without_time_for_a_fold_the_retrievers_get_the_time(monkeypatch):
    clock = Reader(monkeypatch, 1.0)
    limit = FitTime(40.0, strict=True, slack=3.0)
    assert share_before_folds(limit, 20.0, 112) == FOLDED_SHARE  # 20 s, 2 x 10 s, 1.1 s: 43 s
    clock.now = 19.0
    assert share_before_folds(limit, 20.0, 112) == ALONE_SHARE
    assert share_before_folds(FitTime(0.0, strict=False), 20.0, 112) == LEARNING_SHARE


def test_parts_of_a_limit_share_what_was_left_out():
    limit = FitTime(100.0, strict=True)
    limit.part(0.5).left_out.append("a further fold takes 8 s")
    assert limit.left_out == ["a further fold takes 8 s"]
