"""``umpteen evaluate``: the contract's JSON, the table, and errors as sentences."""

import json

import pytest

import umpteen


def test_json_has_exactly_the_shape_of_the_contract(umpteen_command, trained, tiny_data_folder):
    result = umpteen_command("evaluate", trained, tiny_data_folder, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert set(document) == {"heads", "propensity", "n", "unknown_labels"}
    assert list(document["heads"]) == ["dual", "classifier", "combined"]
    assert document["propensity"] == {"a": 0.55, "b": 1.5}
    assert document["n"] == 20
    for values in document["heads"].values():
        assert {"P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5"} <= set(values)
        assert all(isinstance(value, float) and 0 <= value <= 100 for value in values.values())


def test_json_holds_what_python_computes(umpteen_command, trained, tiny_data_folder):
    result = umpteen_command("evaluate", trained, tiny_data_folder, "--json")
    model, data = umpteen.Predictor.load(trained), umpteen.load_dataset(tiny_data_folder)
    assert json.loads(result.stdout) == umpteen.evaluate(model, data).as_json()


def test_one_head_some_metrics_and_another_split(umpteen_command, trained, tiny_data_folder):
    flags = ["--head", "classifier", "--metrics", "P@1, R@10", "--split", "train", "--json"]
    document = json.loads(umpteen_command("evaluate", trained, tiny_data_folder, *flags).stdout)
    assert list(document["heads"]) == ["classifier"]
    assert list(document["heads"]["classifier"]) == ["P@1", "R@10"]
    assert document["n"] == 60


def test_the_table_is_on_stdout_and_its_conditions_on_stderr(
    umpteen_command, trained, tiny_data_folder
):
    result = umpteen_command("evaluate", trained, tiny_data_folder)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].split() == ["metric", "dual", "classifier", "combined"]
    assert "20 texts; PSP with propensity A 0.55, B 1.5; " in result.stderr


def test_the_last_model_can_be_evaluated(umpteen_command, trained, tiny_data_folder):
    result = umpteen_command("evaluate", trained, tiny_data_folder, "--which", "last", "--json")
    model = umpteen.Predictor.load(trained, which="last")
    expected = umpteen.evaluate(model, umpteen.load_dataset(tiny_data_folder)).as_json()
    assert json.loads(result.stdout) == expected


def test_a_split_that_no_data_has_is_wrong_usage(umpteen_command, trained, tiny_data_folder):
    file = tiny_data_folder / "test.jsonl"
    data = file if file.is_file() else tiny_data_folder
    result = umpteen_command("evaluate", trained, data, "--split", "dev")
    assert result.exit_code == 2
    assert "'dev' is not one of 'train', 'validation', 'test'" in result.stderr


def test_errors_are_sentences(umpteen_command, fails, trained, tiny_data_folder, tmp_path):
    said = fails(umpteen_command("evaluate", tmp_path, tiny_data_folder))
    assert "is not a run folder" in said
    said = fails(umpteen_command("evaluate", trained, tmp_path / "nowhere"))
    assert "nowhere" in said
    said = fails(umpteen_command("evaluate", trained, tiny_data_folder, "--split", "validation"))
    assert "no 'validation' split" in said
    said = fails(umpteen_command("evaluate", trained, tiny_data_folder, "--metrics", "P@1,Q@3"))
    assert "Q@3" in said


def test_other_labels_are_a_sentence(umpteen_command, fails, trained, tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "red apple", "labels": ["other"]}\n')
    said = fails(umpteen_command("evaluate", trained, tmp_path))
    assert "no label of the data is in the run" in said


@pytest.mark.parametrize("flags", [["--head", "both"], ["--which", "worst"], ["--device", "tpu"]])
def test_wrong_usage_exits_with_2(flags, umpteen_command, fails, trained, tiny_data_folder):
    fails(umpteen_command("evaluate", trained, tiny_data_folder, *flags), code=2)


def test_scores_of_labels_are_written_to_a_file(
    umpteen_command, tiny_run, tiny_data_folder, tmp_path
):
    file = tmp_path / "labels.csv"
    made = umpteen_command("evaluate", tiny_run, tiny_data_folder, "--per-label", file)
    assert made.exit_code == 0, made.stderr
    assert f"to {file}; predicted are labels with probability" in made.stderr
    lines = file.read_text().splitlines()
    assert lines[0] == "id,text,training_texts,support,predicted,precision,recall,f1"
    assert len(lines) > 10


def test_a_file_of_another_kind_is_refused_before_anything_is_loaded(
    umpteen_command, fails, tmp_path
):
    flags = ("--per-label", tmp_path / "labels.xlsx")
    said = fails(umpteen_command("evaluate", tmp_path / "no-run", tmp_path, *flags))
    assert "written as .csv or .tsv" in said


def test_f1_metrics_can_be_chosen(umpteen_command, tiny_run, tiny_data_folder):
    flags = ("--metrics", "MicroF1,MacroF1,F1,MicroF1@5")
    made = umpteen_command("evaluate", tiny_run, tiny_data_folder, *flags)
    assert made.exit_code == 0, made.stderr
    lines = {line.split()[0]: line.split()[1:] for line in made.stdout.splitlines()}
    assert lines["MicroF1"][:-1] == ["-", "-", "-"]
    assert float(lines["MicroF1"][-1]) > 0
    assert len(lines["MicroF1@5"]) == 4
    one = umpteen_command("evaluate", tiny_run, tiny_data_folder, *flags, "--json")
    assert set(json.loads(one.stdout)["heads"]["dual"]) == {"MicroF1@5"}


def test_the_usual_spelling_of_f1_is_answered_with_ours(
    umpteen_command, fails, tiny_run, tiny_data_folder
):
    flags = ("--metrics", "micro_f1,f1-macro@3")
    said = fails(umpteen_command("evaluate", tiny_run, tiny_data_folder, *flags))
    assert "Did you mean 'MicroF1'?" in said
    assert "Did you mean 'MacroF1@3'?" in said


def test_training_texts_are_named_in_a_warning(umpteen_command, tiny_run, tiny_data_folder):
    file = tiny_data_folder / "train.jsonl"
    result = umpteen_command("evaluate", tiny_run, file, "--metrics", "P@1")
    assert "of 60 texts are training texts of the run" in result.stderr
    assert f"umpteen data split {file} OUT" in result.stderr
    wanted = umpteen_command("evaluate", tiny_run, tiny_data_folder, "--split", "train")
    assert "training texts of the run" not in wanted.stderr
