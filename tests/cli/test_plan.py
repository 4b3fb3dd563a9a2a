"""``umpteen plan``: settings become a job, a plan a table or JSON, a bad word a sentence."""

import json

import pytest

from umpteen.config.settings import preset_names

BASE = ("plan", "--labels", 131_073, "--queries", 294_805, "--gpu", "h200")


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_plan(preset, umpteen_command):
    gpus = ("--gpus", 8) if preset == "query2bid" else ()  # whose batch is that of eight
    result = umpteen_command(*BASE, *gpus, "--preset", preset, "--encoder", "distilbert", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["fits"]
    assert found["device_peak_bytes"] > 0
    assert set(found["seconds"]) == {"step", "refresh", "epoch", "run"}


def test_settings_count(umpteen_command):
    def bytes_of(*changes):
        flags = [f"--set={change}" for change in changes]
        result = umpteen_command(*BASE, "--preset", "unidec", "--dim", 512, *flags, "--json")
        return json.loads(result.stdout)["device_bytes"]

    plain = bytes_of()
    assert plain["label vectors"] == 131_073 * 512 * 4
    small = bytes_of("train.label_storage=bf16", "train.label_moments=int8")
    assert small["label vectors"] == plain["label vectors"] / 2
    assert small["their moments"] < plain["their moments"] / 3
    assert "label vectors" not in bytes_of("model.heads=['dual']", "loss.dual_share=1.0")


def test_the_table_says_what_fits(umpteen_command):
    result = umpteen_command(*BASE, "--preset", "unidec", "--encoder", "minilm", "--gpus", 2)
    assert result.exit_code == 0
    assert "each of 2 x h200" in result.stdout
    for word in ("label vectors", "activations of a step", "at most at one time", "targets"):
        assert word in result.stdout
    assert result.stdout.rstrip().endswith("It fits.")


def test_what_does_not_fit_says_what_to_change_and_exits_with_1(umpteen_command):
    result = umpteen_command(
        "plan", "--labels", 4_000_000, "--queries", 1000, "--preset", "unidec",
        "--encoder", "minilm", "--dim", 768, "--gpu", "a100", "--memory", 40,
    )  # fmt: skip
    assert result.exit_code == 1
    assert "It does not fit; it would with --set train.label_moments=int8" in result.stdout


def test_a_second_stage_is_mentioned(umpteen_command):
    result = umpteen_command(*BASE, "--preset", "ngame", "--encoder", "distilbert")
    assert "a second stage comes after it" in result.stderr


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("eclare", "several ranks train no label vectors with texts"),
        (
            "decaf",
            "several ranks train no label vectors with texts (model.label_parametrization=text)",
        ),
    ],
)
def test_what_training_refuses_on_several_gpus_is_not_planned_for_them(
    preset, says, umpteen_command
):
    result = umpteen_command(*BASE, "--preset", preset, "--gpus", 2)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"--gpus 2: {says}" in result.stderr
    tight = umpteen_command(*BASE, "--preset", preset, "--encoder", "minilm", "--memory", 0.9)
    assert tight.exit_code == 1
    assert "It does not fit" in tight.stdout
    assert "GPUs" not in tight.stdout


def test_a_bank_of_labels_is_planned_for_several_gpus(umpteen_command):
    found = [
        json.loads(umpteen_command(*BASE, "--preset", "unidec-bank", "--gpus", n, "--json").stdout)
        for n in (1, 2)
    ]
    one, two = (plan["device_bytes"]["dual vectors of all labels"] for plan in found)
    assert two == pytest.approx(one / 2, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--encoder", "distlbert"), "Did you mean 'distilbert'?"),
        (("--gpu", "h2000"), "Did you mean 'h200'?"),
        (("--gpus", "0"), "--gpus must be above 0, not 0"),
        (("--labels", "1" + 400 * "0"), "--labels must be at most 1,000,000,000,000,000"),
        (("--preset", "unidek"), "unidec"),
        (("--set", "train.label_storage=fp8"), "train.label_storage must be fp32 or bf16"),
        (("--positives", "200000"), "more labels of a query than --labels"),
    ],
)
def test_bad_input_is_one_sentence(arguments, says, umpteen_command):
    result = umpteen_command(*BASE, *arguments)
    assert result.exit_code == 1
    assert says in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_data_folder_gives_the_numbers(umpteen_command, tiny_data_folder):
    found = umpteen_command("plan", tiny_data_folder, "--gpu", "cpu", "--json")
    assert found.exit_code == 0, found.stderr
    assert "60 training texts" in found.stderr
    assert "40 labels" in found.stderr
    assert "batches.size 32: 60 queries" in found.stderr  # what training would choose
    assert json.loads(found.stdout)["steps_in_an_epoch"] == 2  # 60 texts in batches of 32


def test_a_file_will_do_and_numbers_that_are_given_count(umpteen_command, tiny_data_folder):
    file = tiny_data_folder / "train.jsonl"
    flags = ("--gpu", "cpu", "--json", "--queries", 6400, "--set=batches.size=64")
    found = umpteen_command("plan", file, *flags)
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["steps_in_an_epoch"] == 100


def test_the_default_machine_is_this_one(umpteen_command):
    import torch

    from umpteen.plan.this_machine import host_memory

    found = umpteen_command("plan", "--labels", 1000, "--queries", 1000, "--json")
    assert found.exit_code == 0, found.stderr
    about = json.loads(found.stdout)
    if not torch.cuda.is_available():
        assert about["gpu"] == "cpu"
        assert about["device_memory_bytes"] == host_memory()
    table = umpteen_command("plan", "--labels", 1000, "--queries", 1000)
    assert table.stdout.startswith("On this machine, ")


def test_without_data_and_numbers_the_usage_is_said(umpteen_command):
    found = umpteen_command("plan", "--labels", 10)
    assert found.exit_code == 2
    assert "Give DATA, a folder or file, or --queries." in found.stderr


def test_data_that_cannot_be_trained_on_has_no_plan(umpteen_command, fails, tmp_path):
    (tmp_path / "test.jsonl").write_text('{"text": "a", "labels": ["b"]}\n')
    said = fails(umpteen_command("plan", tmp_path))
    assert "nothing to train on" in said
