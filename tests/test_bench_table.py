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


def reranked_run(seed, kind, p_at_1, gain):
    rows = [
        {"texts": "test", "ranked by": name, "P@1": value, "P@5": 1.0, "PSP@1": 2.0, "PSP@5": 3.0,
         "ms a text": cost}
        for name, value, cost in (("ensemble", p_at_1, 0.1), (kind, p_at_1 + gain, 10.0))
    ]  # fmt: skip
    paired = {"mean": gain, "variance": 4.0, "n": 100}
    return {"data": "toy", "seed": seed, "rows": rows, "spec": {"kind": kind}, "machine": "CPU",
            "train_s": 10.0, "rerank_s": 5.0,
            "paired": {f"P@{k}": paired for k in (1, 3, 5)}}  # fmt: skip


def test_choices_are_means_over_seeds_and_drawn(tmp_path):
    from bench.ensemble import choice
    from bench.training import rerank

    runs = [reranked_run(1, "features", 40.0, 1.0), reranked_run(2, "features", 42.0, 2.0)]
    rows = choice.table(runs)
    assert [(row["choice"], row["P@1"], row["training s"], row["seeds"]) for row in rows] == [
        ("token vectors", 41.0, 10, 2),
        ("token vectors, re-ranked", 42.5, 15, 2),
    ]
    assert choice.plot(rows, "P@1").startswith("<svg")
    for run in runs:
        (tmp_path / f"toy-{run['seed']}.json").write_text(json.dumps(run))
    lines = rerank.summary(tmp_path, "toy")
    assert "toy, seeds 1, 2" in lines[0]
    assert "+1.50 ± 0.28" in "\n".join(lines)
    assert (tmp_path / "toy.md").is_file()
