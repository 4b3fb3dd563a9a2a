"""``umpteen train``: talk on stderr, settings, and errors as sentences."""

import json

import pytest
from small_runs import SETTINGS, steps

from umpteen.locks import exclusive_folder

FLAGS = [f"--set={setting}" for setting in SETTINGS]


def test_a_run_says_what_it_does_and_what_comes_next(umpteen_command, tiny_data_folder, tmp_path):
    run = tmp_path / "run"
    made = umpteen_command("train", tiny_data_folder, "--out", run, "--device", "cpu", *FLAGS)
    assert made.exit_code == 0, made.stderr
    assert made.stdout == ""
    assert "60 training texts, 40 labels" in made.stderr
    assert "best so far" in made.stderr
    assert f"Next: umpteen evaluate {run}" in made.stderr
    settings = json.loads((run / "config.json").read_text())["config"]
    assert settings["train"]["epochs"] == 4
    assert settings["encoder"]["name"] == "bag"
    assert settings["train"]["lr_encoder"] is not None
    assert len(steps(run)) == 8


def test_without_a_test_split_what_comes_next_is_to_predict(
    umpteen_command, tiny_data_folder, tmp_path
):
    data, run = tiny_data_folder / "train.jsonl", tmp_path / "run"
    flags = (*FLAGS, "--set=train.epochs=1")
    made = umpteen_command("train", data, "--out", run, "--device", "cpu", *flags)
    assert made.exit_code == 0, made.stderr
    assert f'Next: echo "some text" | umpteen predict {run}' in made.stderr


def test_without_a_preset_the_reasons_are_said(umpteen_command, tiny_data_folder, tmp_path):
    flags = [flag for flag in FLAGS if "batches.size" not in flag]
    flags += ["--set=train.epochs=1", "--minutes=5", "--device=cpu"]
    made = umpteen_command(
        "train", tiny_data_folder, "--out", tmp_path / "run", *flags, "--verbose"
    )
    assert made.exit_code == 0, made.stderr
    assert "preset unidec-frugal: the encoder is a bag" in made.stderr
    assert "Tokenizing 40 label texts" in made.stderr
    assert "batches.size 32: 60 queries" in made.stderr
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert all(line in made.stderr for line in written["chosen"])
    named = umpteen_command(
        "train", tiny_data_folder, "--out", tmp_path / "named", *flags, "--preset=unidec-frugal"
    )
    assert "batches.size" not in named.stderr


def test_by_default_settings_are_one_line_and_details_are_in_the_log_alone(
    umpteen_command, tiny_data_folder, tmp_path
):
    flags = [flag for flag in FLAGS if "batches.size" not in flag]
    flags += ["--set=train.epochs=1", "--set=ensemble.enabled=auto", "--device=cpu"]
    made = umpteen_command("train", tiny_data_folder, "--out", tmp_path / "run", *flags)
    assert made.exit_code == 0, made.stderr
    lines = made.stderr.splitlines()
    (settings,) = [line for line in lines if line.startswith("Settings: ")]
    assert settings.startswith("Settings: preset unidec-frugal, ")
    assert "batches.size 32" in settings
    (head,) = [place for place, line in enumerate(lines) if line.startswith("Percent ")]
    assert [line.split("  ")[0] for line in lines[head + 1 : head + 3]] == [
        "model alone",
        "ensemble",
    ]
    assert len({len(line.rstrip()) for line in lines[head + 1 : head + 3]}) == 1
    log = (tmp_path / "run" / "log.txt").read_text()
    for detail in ("preset unidec-frugal: the encoder is a bag", "Tokenizing 40 label texts"):
        assert detail not in made.stderr
        assert detail in log


def test_text_and_encoder_have_flags_of_their_own(umpteen_command, tiny_data_folder, tmp_path):
    flags = ["--text", "title", "--encoder", "convolution", "--set=train.epochs=1"]
    made = umpteen_command("train", tiny_data_folder, "--out", tmp_path, *FLAGS, *flags)
    assert made.exit_code == 0, made.stderr
    settings = json.loads((tmp_path / "config.json").read_text())["config"]
    assert settings["data"]["text"] == "title"
    assert settings["encoder"]["name"] == "convolution"


def test_a_preset_file_is_taken_and_set_lies_over_it(umpteen_command, tiny_data_folder, tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text(
        '[encoder]\ntable = "random"\ndim = 8\n[model]\ndim = 8\n[train]\nepochs = 9\n'
    )
    arguments = ["--preset", preset, "--set", "train.epochs=1", "--out", tmp_path / "run"]
    made = umpteen_command("train", tiny_data_folder, *arguments)
    assert made.exit_code == 0, made.stderr
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (settings["encoder"]["dim"], settings["train"]["epochs"]) == (8, 1)


def test_a_run_can_be_repeated_from_its_own_settings(
    umpteen_command, tiny_data_folder, trained, tmp_path
):
    arguments = ["--preset", trained / "config.json", "--out", tmp_path / "run"]
    made = umpteen_command("train", tiny_data_folder, *arguments, "--device", "cpu")
    assert made.exit_code == 0, made.stderr
    assert steps(tmp_path / "run") == steps(trained)


def test_tensorboard_in_a_new_run(umpteen_command, tiny_data_folder, tmp_path):
    pytest.importorskip("tensorboard")
    flags = ["--set=train.epochs=1", "--tensorboard"]
    made = umpteen_command("train", tiny_data_folder, "--out", tmp_path / "run", *FLAGS, *flags)
    assert made.exit_code == 0, made.stderr
    assert list((tmp_path / "run" / "tensorboard").iterdir())


WRONG = [
    (["--set", "train.epoch=3"], "unknown setting train.epoch. Did you mean 'epochs'?"),
    (["--set", "train.epochs=many"], "train.epochs must be int"),
    (["--set", "train.epochs=0"], "above 0"),
    (["--set", "epochs"], "expected section.key=value"),
    (["--set", "loss.dual=sofmax"], "Did you mean 'softmax'?"),
    (["--set", "loss.dual=no_such_module:Loss"], "cannot be loaded"),
    (["--set", "validation.select=P@@1"], "P@@1"),
    (["--set", "data.max_tokens=32", "--set", "encoder.options={width=3}"], "width"),
    (["--encoder", "./no/such/folder"], "no/such/folder"),
    (["--preset", "unidek"], "Did you mean 'unidec'?"),
    (["--preset", "missing.toml"], "does not exist"),
    (["--resume", "--set", "seed=1"], "is not a run folder"),
    (["--resume"], "is not a run folder"),
    (["--minutes", "0"], "more than 0 minutes"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(
    flags, message, umpteen_command, fails, tiny_data_folder, tmp_path
):
    run = tmp_path / "run"
    flags = [*FLAGS, *flags] if "--preset" not in flags and "--resume" not in flags else flags
    said = fails(umpteen_command("train", tiny_data_folder, "--out", run, *flags))
    assert message in said
    assert not run.exists()


OTHER = [
    (["--set", "seed=1"], "seed is 1 in the command and 17 in the run"),
    (["--preset", "unidec"], "in the command and"),
    (["--text", "title"], "data.text is 'title' in the command and 'all' in the run"),
    (["--encoder", "convolution"], "encoder.name is 'convolution' in the command and 'bag' in"),
    (["--minutes", "3"], "the run was started without --minutes"),
]


@pytest.mark.parametrize(("flags", "message"), OTHER)
def test_a_resume_that_asks_for_other_settings_names_the_first_difference(
    flags, message, umpteen_command, fails, tiny_data_folder, trained
):
    command = ("train", tiny_data_folder, "--out", trained, "--resume", *flags)
    assert message in fails(umpteen_command(*command))


def test_resume_is_accepted_at_the_end_of_the_original_command(
    umpteen_command, tiny_data_folder, trained
):
    command = ("train", tiny_data_folder, "--out", trained, "--device", "cpu", *FLAGS)
    again = umpteen_command(*command, "--resume")
    assert again.exit_code == 0, again.stderr
    assert "Continuing from" in again.stderr


def test_missing_data_is_a_sentence(umpteen_command, fails, tmp_path):
    said = fails(umpteen_command("train", tmp_path / "nowhere", "--out", tmp_path / "run"))
    assert "nowhere" in said


def test_a_folder_in_use_is_a_sentence(umpteen_command, fails, tiny_data_folder, trained):
    said = fails(umpteen_command("train", tiny_data_folder, "--out", trained, *FLAGS))
    assert "--resume" in said


def test_other_data_is_a_sentence(umpteen_command, fails, tmp_path, run):
    lines = [json.dumps({"text": f"text {i}", "labels": ["a"]}) for i in range(9)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    said = fails(umpteen_command("train", tmp_path / "train.jsonl", "--out", run, "--resume"))
    assert "other data" in said


@pytest.mark.parametrize("flags", [[], ["--device", "tpu"], ["--text", "half"], ["--nonsense"]])
def test_wrong_usage_exits_with_2(flags, umpteen_command, fails, tiny_data_folder, tmp_path):
    out = ["--out", tmp_path / "run"] if flags else []
    fails(umpteen_command("train", tiny_data_folder, *out, *flags), code=2)


def test_a_loss_that_is_not_finite_is_a_sentence(
    umpteen_command, fails, tiny_data_folder, tmp_path
):
    flags = [*FLAGS, "--set=loss.dual=small_runs:NanAfter", "--set=train.checkpoint_seconds=0"]
    said = fails(umpteen_command("train", tiny_data_folder, "--out", tmp_path / "run", *flags))
    assert "the loss became nan at step 6" in said
    assert "step-000000005" in said


def test_a_well_known_data_set_brings_its_settings_and_constants(
    umpteen_command, tiny_data_folder, tmp_path
):
    run = tmp_path / "run"
    flags = ["--dataset", "lf-amazontitles-131k", "--set=train.epochs=1"]
    made = umpteen_command("train", tiny_data_folder, "--out", run, *FLAGS, *flags)
    assert made.exit_code == 0, made.stderr
    settings = json.loads((run / "config.json").read_text())["config"]
    assert settings["data"]["text"] == "title"
    shown = umpteen_command("evaluate", run, tiny_data_folder)
    assert "propensity A 0.6, B 2.6" in shown.stderr


def test_an_unknown_data_set_is_a_sentence(umpteen_command, fails, tiny_data_folder, tmp_path):
    flags = ["--out", tmp_path / "run", "--dataset", "lf-amazon"]
    said = fails(umpteen_command("train", tiny_data_folder, *flags))
    assert "data set 'lf-amazon' is not known. Known: eurlex-4k" in said


def test_the_run_folder_has_a_log_from_the_start(umpteen_command, tiny_data_folder, tmp_path):
    run = tmp_path / "run"
    flags = (*FLAGS, "--set=train.epochs=1", "--device", "cpu")
    made = umpteen_command("train", tiny_data_folder, "--out", run, *flags)
    assert made.exit_code == 0, made.stderr
    assert made.stderr.splitlines()[0] == f"Reading {tiny_data_folder}"
    lines = (run / "log.txt").read_text().splitlines()
    assert lines[0].endswith(f"Reading {tiny_data_folder}")
    assert any("best so far" in line for line in lines)
    assert all(line[:2] == "20" for line in lines)


def test_a_run_killed_before_it_began_can_be_started_again(
    umpteen_command, tiny_data_folder, tmp_path
):
    flags = (*FLAGS, "--set=train.epochs=1", "--device", "cpu")
    for name, more in (("fresh", ()), ("resumed", ("--resume",))):
        run = tmp_path / name
        run.mkdir()
        (run / "log.txt").write_text("2026-01-01T00:00:00+0000 Reading\n")
        made = umpteen_command("train", tiny_data_folder, "--out", run, *flags, *more)
        assert made.exit_code == 0, made.stderr
        assert (run / "models.json").is_file()


def test_a_folder_in_use_is_refused_before_the_data_is_read(umpteen_command, fails, trained):
    said = fails(umpteen_command("train", "no-such-data", "--out", trained))
    assert "continue the run in it with --resume" in said
    assert "Reading" not in said


def test_a_folder_that_a_training_holds_is_refused_and_left_alone(
    umpteen_command, tiny_data_folder, tmp_path
):
    run = tmp_path / "run"
    with exclusive_folder(run, busy=RuntimeError()):
        (run / "log.txt").write_text("2026-01-01T00:00:00+0000 Reading it\n")
        for more in ([], ["--resume"]):
            made = umpteen_command("train", tiny_data_folder, "--out", run, *FLAGS, *more)
            assert made.exit_code == 1
            assert "another training writes to" in made.stderr
        assert [file.name for file in run.iterdir()] == ["log.txt"]
        assert len((run / "log.txt").read_text().splitlines()) == 1
        said = umpteen_command("evaluate", run, tiny_data_folder)
        assert said.exit_code == 1
        assert "Reading it" in said.stderr
        assert "--resume" in said.stderr
