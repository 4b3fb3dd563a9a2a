"""Differences paired over queries and seeds, against plain arithmetic."""

import json
import math
import statistics

import numpy as np
import pytest

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
        outcomes.result_file(tmp_path, run).write_text(json.dumps({"heads": {"dual": {}}}))
        np.savez(outcomes.per_query_file(tmp_path, run), **{"dual/P@1": value.astype(np.float16)})
    return made


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
    (tmp_path / paired.KEPT).write_text(json.dumps(paired.as_json(found)))
    for file in (tmp_path / "per_query").iterdir():
        file.unlink()
    assert paired.differences(study, tmp_path, "plain") == found
