"""Runs of several studies side by side: their order, and seeds that wait for the best switch."""

import json

import pytest
from bench import catalogue
from bench.training import studies
from small_runs import SETTINGS

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


def write(job, micro_f1, out=None):
    file = studies.result_file(out or job.out, job.run)
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


def test_runs_with_a_kept_result_are_left_out_and_named_twice_run_once(jobs, tmp_path):
    kept, file = tmp_path / "kept", tmp_path / "s.toml"
    write(jobs[0], 74.0, out=kept / "s")
    left = studies.jobs_of([f"{file}:seed2", str(file)], {}, tmp_path / "out", [], kept)
    assert [job.run.switch.name + str(job.run.seed) for job in left] == ["a2", "b2", "b1"]


def test_further_seeds_of_the_best_switch_do_not_wait_for_kept_results(jobs, tmp_path):
    kept = tmp_path / "kept"
    write(jobs[0], 74.0, out=kept / "s")
    write(jobs[1], 75.0, out=kept / "s")
    left = studies.jobs_of([f"{tmp_path}/s.toml:@best"], {}, tmp_path / "out", [], kept)
    crew = studies.Crew(left, 0, 1, "cpu")
    assert [crew.jobs[number].run.switch.name for number in iter(crew.take, None)] == ["b"]


@pytest.mark.slow
@pytest.mark.processes
def test_collected_results_are_those_of_the_runs_and_are_not_made_again(
    tiny_data_folder, tmp_path, capsys
):
    file = tmp_path / "s.toml"
    source = f'[data.tiny]\npath = "{{tiny}}"\nsettings = {json.dumps(list(SETTINGS))}\n'
    file.write_text(f"seeds = [1, 2]\n{source}[switches.a]\n")
    words = ["training", "studies", str(file), "--path", f"tiny={tiny_data_folder}", "--jobs", "1"]
    words += ["--device", "cpu", "--out", str(tmp_path / "work")]
    few, kept = str(tmp_path / "few"), tmp_path / "kept"
    catalogue.main([*words, "--collect", few])
    catalogue.main(["training", "studies", "--unpack", few, "--out", str(kept)])
    assert "2 of 2 runs" in capsys.readouterr().out
    made = sorted(each for each in (tmp_path / "work" / "s").glob("[rp]e*/*") if each.is_file())
    assert len(made) == 4
    for each in made:
        assert (kept / each.relative_to(tmp_path / "work")).read_bytes() == each.read_bytes()
    catalogue.main([*words, "--done", str(kept)])
    assert "0 of 0 runs" in capsys.readouterr().out
