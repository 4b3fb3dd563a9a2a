"""A model against a split: the numbers are those of its own predictions, filters left out."""

import dataclasses
import json

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.data.dataset import Dataset
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, DataError, LabelMismatch


@pytest.fixture(scope="module")
def model(tiny_data, tmp_path_factory):
    return fit(tiny_data, tmp_path_factory.mktemp("evaluation") / "run", "train.epochs=8")


def hits_by_hand(model, data, head, k) -> float:
    """P@k in percent, from single scores: every label of every query, one at a time."""
    split = data["test"]
    vectors = model.vectors(split.texts()).numpy()[:, model.columns(head)]
    labels = model.label_vectors(head)
    filters = {tuple(pair) for pair in split.filters.tolist()}
    total = 0.0
    for query in range(len(split)):
        own = set(split.targets[query].indices.tolist())
        scored = [
            (-float(vectors[query] @ labels[label]), label)
            for label in range(len(labels))
            if (query, label) not in filters
        ]
        best = [label for _, label in sorted(scored)[:k]]
        total += sum(label in own and (query, label) not in filters for label in best) / k
    return 100 * total / len(split)


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
@pytest.mark.parametrize("k", [1, 3])
def test_precision_is_that_of_a_plain_count(head, k, model, tiny_data):
    report = umpteen.evaluate(model, tiny_data, head=head, metrics=[f"P@{k}"])
    assert report[head].values[f"P@{k}"] == pytest.approx(hits_by_hand(model, tiny_data, head, k))


def test_labels_that_are_filtered_for_a_query_make_room_for_the_next(model, tiny_data):
    test = tiny_data["test"]
    best = model.predict(test.texts(), 5).rows
    pairs = np.column_stack([np.repeat(np.arange(len(test)), 5), best.ravel()])
    filtered = dataclasses.replace(test, filters=pairs)
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": filtered})
    report = umpteen.evaluate(model, data, head="combined", metrics=["P@5"])["combined"]
    assert report.n_filters == 100
    assert report.values["P@5"] == pytest.approx(hits_by_hand(model, data, "combined", 5))
    assert report.values["P@5"] > 0


def test_tokens_that_are_known_give_the_same_numbers(model, tiny_data):
    from umpteen.data.tokens import TokenStore, encode

    ragged = encode(tiny_data["test"].texts(), model.tokenizer, max_tokens=model.reading.max_tokens)
    known = umpteen.evaluate(model, tiny_data, tokens=TokenStore(ragged.ids, ragged.offsets))
    assert known.as_json() == umpteen.evaluate(model, tiny_data).as_json()


def test_the_document_holds_every_head_and_the_constants(model, tiny_data):
    document = umpteen.evaluate(model, tiny_data).as_json()
    assert list(document["heads"]) == ["dual", "classifier", "combined"]
    assert document["propensity"] == {"a": 0.55, "b": 1.5}
    assert document["n"] == 20
    assert json.loads(json.dumps(document)) == document


def test_another_split_and_deep_metrics_work(model, tiny_data):
    report = umpteen.evaluate(model, tiny_data, split="train", metrics=["R@100", "P@60"])["dual"]
    assert report.n == 60
    assert report.values["R@100"] == pytest.approx(100.0)


def test_texts_are_read_as_in_training(tiny_data, tmp_path):
    titles = tiny_data["test"].titles
    split = dataclasses.replace(tiny_data["test"], contents=["unrelated words"] * len(titles))
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": split})
    model = fit(tiny_data, tmp_path, "data.text=title", "train.epochs=1")
    loaded = umpteen.Predictor.load(tmp_path)
    assert loaded.reading.text == "title"
    expected = umpteen.evaluate(model, tiny_data).as_json()
    assert umpteen.evaluate(loaded, data).as_json() == expected


def test_other_labels_are_a_mismatch(model, tiny_data):
    ids = list(tiny_data.labels.ids)
    ids[3], ids[4] = ids[4], ids[3]
    data = Dataset(LabelSet(ids, tiny_data.labels.titles), tiny_data.splits)
    with pytest.raises(LabelMismatch, match="first differ at row 3"):
        umpteen.evaluate(model, data)


def test_what_is_not_there_is_a_sentence(model, tiny_data):
    with pytest.raises(DataError, match="no 'validation' split"):
        umpteen.evaluate(model, tiny_data, split="validation")
    with pytest.raises(ConfigError, match="has no head"):
        umpteen.evaluate(model, tiny_data, head="both")
    with pytest.raises(ConfigError, match="P@x"):
        umpteen.evaluate(model, tiny_data, metrics=["P@x"])
