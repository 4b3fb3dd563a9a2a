"""Splits as training sees them, and the fingerprint that ties a checkpoint to its data."""

import dataclasses

import numpy as np
import pytest
from small_runs import SETTINGS

from umpteen.config.loading import load_config
from umpteen.data.dataset import Dataset
from umpteen.errors import DataError
from umpteen.model.frugal.tables import train_tokenizer
from umpteen.training import prepare

CONFIG = load_config(overrides=SETTINGS)


def prepared(data, tmp_path, config=CONFIG):
    splits = prepare.training_splits(data, config)
    tokenizer = train_tokenizer(prepare.all_texts(splits, "all"), vocabulary=200)
    return prepare.prepare(splits, config, tokenizer, cache=tmp_path, log=lambda text: None)


def test_what_is_held_out_and_what_is_trained_on_share_no_query(tiny_data):
    found = prepare.training_splits(tiny_data, CONFIG)
    assert set(found.splits) == {"train", "validation"}
    train, validation = set(found["train"].ids), set(found["validation"].ids)
    assert not train & validation
    assert train | validation == set(tiny_data["train"].ids)
    assert len(validation) == 9


def test_filter_pairs_stay_with_their_queries(tiny_data):
    found = prepare.training_splits(tiny_data, CONFIG)
    pairs = {
        (part.ids[row], label) for part in found.splits.values() for row, label in part.filters
    }
    own = tiny_data["train"]
    assert pairs == {(own.ids[row], label) for row, label in own.filters}


def test_a_validation_split_of_the_data_is_used_as_it_is(tiny_data):
    data = dataclasses.replace(
        tiny_data, splits={"train": tiny_data["train"], "validation": tiny_data["test"]}
    )
    found = prepare.training_splits(data, CONFIG)
    assert found["train"] is tiny_data["train"]
    assert found["validation"] is tiny_data["test"]
    np.testing.assert_array_equal(prepare.source_rows(data, CONFIG), np.arange(60))


def test_source_rows_point_into_the_users_train_split(tiny_data):
    found = prepare.training_splits(tiny_data, CONFIG)
    rows = prepare.source_rows(tiny_data, CONFIG)
    assert [tiny_data["train"].ids[row] for row in rows] == found["train"].ids


def test_a_share_of_nothing_holds_nothing_out(tiny_data, tmp_path):
    config = load_config(overrides=[*SETTINGS, "validation.share=0"])
    assert "validation" not in prepare.training_splits(tiny_data, config)
    assert prepared(tiny_data, tmp_path, config).validation is None


def test_data_without_train_is_refused(tiny_data):
    with pytest.raises(DataError, match="no train split"):
        prepare.training_splits(Dataset(tiny_data.labels, {"test": tiny_data["test"]}), CONFIG)


def test_the_learned_tokenizer_is_the_same_every_time(tiny_data):
    splits = prepare.training_splits(tiny_data, CONFIG)
    texts = [*prepare.all_texts(splits, "all"), "日本語 ünïcode ##pieces [UNK]"]
    one, two = (train_tokenizer(texts, vocabulary=200).to_str() for _ in range(2))
    assert one == two


def test_the_fingerprint_knows_texts_targets_filters_and_length(tiny_data, tmp_path):
    base = prepared(tiny_data, tmp_path).fingerprint
    assert prepared(tiny_data, tmp_path).fingerprint == base
    train = tiny_data["train"]
    targets = train.targets.copy()
    targets.data[3] = 0.5
    others = [
        dataclasses.replace(train, titles=[*train.titles[:-1], "other words"]),
        dataclasses.replace(train, targets=targets),
        dataclasses.replace(train, filters=train.filters[:1]),
    ]
    found = [base]
    for other in others:
        data = dataclasses.replace(tiny_data, splits={"train": other})
        found.append(prepared(data, tmp_path).fingerprint)
    shorter = load_config(overrides=[*SETTINGS, "data.max_tokens=3"])
    found.append(prepared(tiny_data, tmp_path, shorter).fingerprint)
    assert len(set(found)) == len(found)


def test_the_test_split_is_no_part_of_the_fingerprint(tiny_data, tmp_path):
    alone = dataclasses.replace(tiny_data, splits={"train": tiny_data["train"]})
    assert prepared(alone, tmp_path).fingerprint == prepared(tiny_data, tmp_path).fingerprint


def test_texts_that_are_cut_are_counted_in_the_log(tmp_path):
    texts = ["one two three " * 400, "one two", "three " * 900]
    data = Dataset.from_lists(texts, [["a"], ["b"], ["a"]])
    config = dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, max_tokens=16))
    tokenizer = train_tokenizer(texts, vocabulary=200)
    for _ in range(2):  # the second time the store is found
        said = []
        prepare.prepare(data, config, tokenizer, cache=tmp_path, log=said.append)
        assert (
            "2 of 3 training texts are longer than 16 tokens; the encoder reads the first 16"
            in said
        )
    assert not any("label texts are longer" in line for line in said)
