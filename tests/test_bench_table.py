"""The table of ``training gpu``: what is printed, kept and compared, not how long it takes."""

import json
from pathlib import Path

import pytest
import torch
from bench import catalogue
from bench.training import gpu

BENCH = Path(__file__).parent.parent / "bench"


def setting():
    return gpu.Setting(torch.device("cpu"), 0.0001, 1, None)


def test_a_row_that_fails_does_not_lose_the_others(monkeypatch, capsys):
    def fails(setting):
        yield gpu.Row("bce", "half of it", 2.0)
        raise RuntimeError("no memory left")

    def works(setting):
        yield gpu.Row("step", "all of it", 32.0, gib=8.0, plan_ms=40.0, plan_gib=6.0)

    monkeypatch.setattr(gpu, "ROWS", {"first": fails, "second": works})
    rows = gpu.run(setting(), ["first", "second"])
    assert [row.name for row in rows] == ["bce", "step"]
    told = capsys.readouterr().out
    assert "first: RuntimeError: no memory left" in told
    assert "40 (+25%)" in told
    assert "6 (-25%)" in told


def test_floors_and_aims_are_those_of_whole_sizes_alone():
    row = gpu.Row("step", "a step", 32.0)
    assert "| 16 | 50% | 35, 10 GiB |" in gpu.line(row, whole=True)
    assert "16" not in gpu.line(row, whole=False)


def test_results_are_compared_by_row(tmp_path, capsys):
    for name, ms in (("old", 40.0), ("new", 30.0)):
        rows = [{"name": "step", "work": "a step", "ms": ms, "gib": None, "plain_ms": 100.0}]
        about = {"commit": name * 9, "torch": name, "scale": 1.0}
        (tmp_path / f"{name}.json").write_text(json.dumps(about | {"rows": rows}))
    arguments = ["training", "gpu", "--load", str(tmp_path / "new.json")]
    arguments += ["--compare", str(tmp_path / "old.json")]
    catalogue.main(arguments)
    told = capsys.readouterr().out
    assert "| step | time 0.75 | memory - | plain 1 |" in told
    assert "not alike: torch new over old" in told
    assert "not alike: scale" not in told
    assert "| a step | 30 | - | 100 |" in told  # what was kept, as it was printed


def test_plans_are_asked_for_every_job_of_the_table():
    whole = gpu.Setting(torch.device("cpu"), 1.0, 1, None)
    for what in ("step", "refresh", "epoch"):
        ms, gib = gpu.predicted(gpu.unidec_job(whole), what)
        assert 0 < ms < 1e6
        assert 1 < gib < 139


@pytest.mark.parametrize(
    "file", sorted(BENCH.glob("results/gpu-h200-*.json")), ids=lambda f: f.stem
)
def test_plans_are_as_near_to_kept_results_as_the_documents_say(file):
    """Memory within a quarter, time within a factor of two."""
    whole = gpu.Setting(torch.device("cpu"), 1.0, 1, None)
    kept = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    unidec, dexml = gpu.unidec_job(whole), gpu.dexml_job(whole)
    compared = 0
    for name, job in (("step", unidec), ("dexml", dexml), ("refresh", unidec), ("epoch", unidec)):
        if name not in kept:
            continue
        ms, gib = gpu.predicted(job, "step" if name == "dexml" else name)
        assert 0.5 < ms / kept[name]["ms"] < 2, name
        if name != "epoch":  # a refresh's and its steps', whichever is more
            assert 0.75 < gib / kept[name]["gib"] < 1.25, name
        compared += 1
    assert compared


def test_a_small_row_runs_on_a_cpu():
    rows = gpu.run(setting(), ["softmax"])
    assert [row.name for row in rows] == ["softmax"]
    assert all(row.ms > 0 and row.plain_ms > 0 for row in rows)
