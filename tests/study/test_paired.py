"""Differences paired over queries and seeds, against plain arithmetic."""

import json
import math
import statistics

import numpy as np
import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.study import outcomes, paired
from umpteen.study.definition import read_study

TEXT = """
seeds = [1, 2, 3]
[data.x]
path = "x"
[switches.plain]
[switches.better]
[switches.mixed]
"""
SHIFT = {"plain": [0, 0, 0], "better": [20, 10, 30], "mixed": [5, -5, 1]}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    made = read_study(tmp_path / "s.toml")
    rng = np.random.default_rng(0)
    for run in made.runs():
        value = rng.choice([0.0, 100.0], 400) + SHIFT[run.switch.name][run.seed - 1]
        for file in (
            outcomes.result_file(tmp_path, run),
            outcomes.per_query_file(tmp_path, run),
        ):
            file.parent.mkdir(exist_ok=True)
        write_result(tmp_path, run, value.mean())
        np.savez(outcomes.per_query_file(tmp_path, run), **{"dual/P@1": value.astype(np.float16)})
    return made


def write_result(tmp_path, run, value):
    result = {"heads": {"dual": {"metrics": {"P@1": float(value)}}}}
    outcomes.result_file(tmp_path, run).write_text(json.dumps(result))


def difference(by_seed, p=1e-6):
    return paired.Difference(
        *("x", "unidec", "new", "plain", "dual", "P@1"),
        mean=statistics.fmean(by_seed),
        by_seed=tuple(by_seed),
        p=p,
    )


def by_hand(tmp_path, study, switch):
    def load(name, seed):
        run = next(r for r in study.runs() if r.switch.name == name and r.seed == seed)
        values = np.load(outcomes.per_query_file(tmp_path, run))["dual/P@1"]
        return [float(value) for value in values]

    pairs = [(load(switch, seed), load("plain", seed)) for seed in (1, 2, 3)]
    seeds = [statistics.fmean(x - y for x, y in zip(a, b, strict=True)) for a, b in pairs]
    each = [statistics.fmean(a[i] - b[i] for a, b in pairs) for i in range(400)]
    z = statistics.fmean(each) / (statistics.stdev(each) / math.sqrt(400))
    return seeds, 2 * (1 - statistics.NormalDist().cdf(abs(z)))


def test_differences_are_those_of_a_paired_test_and_are_clear_only_where_seeds_agree(
    study, tmp_path
):
    found = {each.switch: each for each in paired.differences(study, tmp_path, "plain")}
    assert set(found) == {"better", "mixed"}
    for name, each in found.items():
        seeds, p = by_hand(tmp_path, study, name)
        assert each.by_seed == pytest.approx(seeds)
        # With 400 queries Student's distribution is the normal one within a thousandth.
        assert each.p == pytest.approx(p, abs=2e-3)
        assert each.mean == pytest.approx(statistics.fmean(seeds))
    assert found["better"].is_clear
    assert not found["mixed"].is_clear
    assert "**+1" in paired.table(list(found.values())).split("mixed")[0]


def test_kept_differences_are_read_where_the_values_of_queries_are_gone(study, tmp_path):
    found = paired.differences(study, tmp_path, "plain")
    keep(tmp_path, found)
    drop_queries(tmp_path)
    assert paired.differences(study, tmp_path, "plain") == found


def test_kept_differences_stay_beside_new_ones(study, tmp_path):
    found = paired.differences(study, tmp_path, "plain")
    keep(tmp_path, [*found, *paired.differences(study, tmp_path, "mixed")])
    drop_queries(tmp_path, "mixed")
    assert paired.differences(study, tmp_path, "plain") == found
    assert {each.against for each in paired.all_differences(study, tmp_path, "plain")} == {
        "mixed",
        "plain",
    }


def test_a_kept_difference_is_dropped_if_a_result_was_replaced(study, tmp_path):
    keep(tmp_path, paired.differences(study, tmp_path, "plain"))
    drop_queries(tmp_path, "mixed")
    for run in study.runs():
        if run.switch.name == "mixed":
            write_result(tmp_path, run, 0.0)
    assert {each.switch for each in paired.differences(study, tmp_path, "plain")} == {"better"}


def test_a_kept_difference_of_more_seeds_replaces_one_of_fewer(study, tmp_path):
    found = paired.differences(study, tmp_path, "plain")
    keep(tmp_path, found)
    drop_queries(tmp_path, "seed2")
    assert paired.differences(study, tmp_path, "plain") == found


def test_the_command_keeps_what_it_cannot_compute(study, tmp_path):
    keep(tmp_path, paired.differences(study, tmp_path, "plain"))
    before = (tmp_path / paired.KEPT).read_text()
    drop_queries(tmp_path, "mixed")
    paired_rows(study, tmp_path)
    assert json.loads((tmp_path / paired.KEPT).read_text()) == json.loads(before)


def test_a_difference_that_seeds_do_not_repeat_is_not_clear():
    # Measured: astec on MDN-SeeAlso, P@1 with and without Gandalf. One seed decides it.
    by_seed = (0.7986, 0.2218, 8.9618)
    error = statistics.stdev(by_seed) / math.sqrt(3)
    assert statistics.fmean(by_seed) < 2 * error
    assert not difference(by_seed).is_clear
    assert difference((3.0, 3.5, 4.0)).is_clear
    assert difference((-3.0, -3.5, -4.0)).is_clear
    assert not difference((3.0, 3.5, 4.0), p=0.02).is_clear
    assert not difference((3.0, 3.5)).is_clear


def paired_rows(study, tmp_path):
    """Run the command on the study of these tests, with results that the table can show."""
    for run in study.runs():
        file = outcomes.result_file(tmp_path, run)
        result = json.loads(file.read_text())
        metrics = dict.fromkeys(study.metrics, 0.0) | result["heads"]["dual"]["metrics"]
        result["heads"]["dual"] = {"metrics": metrics, "bins": [0.0] * 5}
        extra = {"validation": [], "steps": 1, "train_seconds": 1.0, "peak_gib": 1.0}
        file.write_text(json.dumps(result | extra))
    words = ["study", str(tmp_path / "s.toml"), "--out", str(tmp_path), "--draw"]
    done = CliRunner().invoke(main, [*words, "--against", "plain"])
    assert done.exit_code == 0, done.output
    assert "mixed | plain" in done.stdout


def keep(tmp_path, found):
    (tmp_path / paired.KEPT).write_text(json.dumps(paired.as_json(found)))


def drop_queries(tmp_path, text=""):
    for file in (tmp_path / "per_query").iterdir():
        if text in file.name:
            file.unlink()
