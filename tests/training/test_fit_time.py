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
from umpteen.training.fit_time import MIN_TEXTS, FitTime, readable_rows


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
        until=1.0,
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
    assert "without character n-grams" in said[0]
