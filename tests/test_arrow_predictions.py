"""Predictions of Arrow tables and parquet parts: equal to the predictor's, resumable, complete."""

import json

import pytest

from umpteen.errors import ConfigError, DataError
from umpteen.prediction_records import label_records
from umpteen.predictor import Predictor

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from umpteen.arrow_predictions import (  # noqa: E402
    ArrowPredictor,
    missing_parts,
    plan_parts,
    predict_part,
)

TEXTS = ["red apple", "", "yellow banana", "pear and plum", "nothing at all", "apple", None]


@pytest.fixture(scope="module")
def predictor(tiny_run):
    return ArrowPredictor(tiny_run, device="cpu", k=3)


@pytest.fixture
def inputs(tmp_path):
    place = tmp_path / "inputs"
    place.mkdir()
    table = pa.table({"number": range(7), "text": TEXTS, "labels": ["old"] * 7})
    parquet.write_table(table, place / "a.parquet", row_group_size=2)
    parquet.write_table(table.slice(0, 1), place / "b.parquet")
    return place


def predict_all(predictor, run, inputs, out):
    parts = plan_parts(run, [inputs], out, options={"k": 3}, rows_per_part=4)
    for part in missing_parts(parts, out):
        predict_part(predictor, part, out)
    return parts


def test_a_table_gets_what_the_predictor_returns(predictor, tiny_run):
    table = predictor(pa.table({"text": TEXTS, "price": range(7)}))
    assert table.column_names == ["text", "price", "labels", "note"]
    top = Predictor.load(tiny_run, device="cpu").predict([text or "" for text in TEXTS], 3)
    assert table.column("labels").to_pylist() == [label_records(top, i) for i in range(7)]
    parts = pa.Table.from_batches(predictor.batches(iter(table.to_batches(2))))
    assert parts.drop_columns("labels").equals(table.drop_columns("labels").combine_chunks())
    for whole, part in zip(table["labels"].to_pylist(), parts["labels"].to_pylist(), strict=True):
        assert [label["id"] for label in part] == [label["id"] for label in whole]
        # Sums of smaller batches are rounded in another order, and scores to six places.
        scores = [label["score"] for label in whole]
        assert [label["score"] for label in part] == pytest.approx(scores, abs=2e-6)


def test_several_columns_are_joined_and_a_missing_one_is_named(predictor, tiny_run):
    joined = ArrowPredictor(tiny_run, text_column=["title", "more"], device="cpu", k=3)
    table = joined(pa.table({"title": ["red"], "more": ["apple"]}))
    assert table.column("labels")[0] == predictor(pa.table({"text": ["red apple"]}))["labels"][0]
    with pytest.raises(DataError, match="no column 'text'; the table has: title"):
        predictor(pa.table({"title": ["red"]}))


def test_parts_hold_every_row_once(predictor, tiny_run, inputs, tmp_path):
    parts = predict_all(predictor, tiny_run, inputs, tmp_path / "out")
    assert [part.rows for part in parts] == [4, 3, 1]
    whole = parquet.read_table(tmp_path / "out")  # the manifest is no part
    assert whole.column_names == ["number", "text", "labels", "note"]
    assert whole.column("number").to_pylist() == [*range(7), 0]
    assert whole.column("labels")[0].as_py() == whole.column("labels")[7].as_py()


def test_only_missing_parts_are_predicted_again(predictor, tiny_run, inputs, tmp_path):
    out = tmp_path / "out"
    parts = predict_all(predictor, tiny_run, inputs, out)
    before = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    (out / parts[1].name).unlink()
    predict_all(predictor, tiny_run, inputs, out)
    after = {file.name: file.stat().st_mtime_ns for file in out.iterdir()}
    assert set(after) == set(before)
    assert {name for name in after if after[name] != before[name]} == {parts[1].name}


def test_a_folder_of_other_predictions_is_refused(predictor, tiny_run, inputs, tmp_path):
    out = tmp_path / "out"
    predict_all(predictor, tiny_run, inputs, out)
    with pytest.raises(ConfigError, match="another option; name another folder"):
        plan_parts(tiny_run, [inputs], out, options={"k": 4}, rows_per_part=4)
    with pytest.raises(ConfigError, match="another part"):
        plan_parts(tiny_run, [inputs / "a.parquet"], out, options={"k": 3}, rows_per_part=4)
    manifest = out / "_manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"run": "another"}))
    with pytest.raises(ConfigError, match="another run"):
        plan_parts(tiny_run, [inputs], out, options={"k": 3}, rows_per_part=4)


def test_inputs_that_are_no_parquet_are_named(tiny_run, inputs, tmp_path):
    (inputs / "c.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"c\.parquet"):
        plan_parts(tiny_run, [inputs], tmp_path / "out", options={})
    with pytest.raises(DataError, match=r"no file that ends in \.parquet"):
        plan_parts(tiny_run, [tmp_path], tmp_path / "out", options={})
    assert not (tmp_path / "out").exists()


def test_a_changed_input_leaves_no_part(predictor, tiny_run, inputs, tmp_path):
    parts = plan_parts(tiny_run, [inputs], tmp_path / "out", options={})
    parquet.write_table(pa.table({"text": ["one"]}), parts[0].file)
    with pytest.raises((DataError, pa.ArrowException, IndexError)):
        predict_part(predictor, parts[0], tmp_path / "out")
    assert missing_parts(parts, tmp_path / "out") == parts
