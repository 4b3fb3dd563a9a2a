"""Runs of several studies side by side: their order, and seeds that wait for the best switch."""

import json

import pytest
from bench.training import studies

TEXT = """
seeds = [1, 2]
[data.x]
path = "x"
[switches.a]
[switches.b]
"""


@pytest.fixture
def jobs(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    named = [f"{tmp_path}/s.toml:--b--seed1,--a--seed1", f"{tmp_path}/s.toml:@best"]
    return studies.jobs_of(named, {}, tmp_path / "out", ["train.epochs=1"])


def write(job, micro_f1):
    file = studies.result_file(job.out, job.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"ensemble": {"micro-F1": micro_f1}}))


def test_further_seeds_wait_for_the_first_and_only_the_best_switch_has_them(jobs):
    crew = studies.Crew(jobs, 0, 1, "cpu")
    assert [job.run.switch.name + str(job.run.seed) for job in jobs] == ["a1", "b1", "a2", "b2"]
    assert all("train.epochs=1" in job.run.settings for job in jobs)
    assert [crew.take(), crew.take(), crew.take()] == [0, 1, studies.WAIT]
    write(jobs[0], 74.0)
    assert crew.take() == studies.WAIT
    write(jobs[1], 75.0)
    assert [crew.take(), crew.take()] == [3, None]
