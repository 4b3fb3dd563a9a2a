"""Metrics of a model: those of its own predictions, without filter pairs, labels matched by id."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.data.convert import save_dataset
from umpteen.data.dataset import Dataset, Split, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


def hits_by_hand(model, data, head, k) -> float:
    """P@k in percent, from single scores: every label of every query, one at a time."""
    split = data["test"]
    vectors = model.vectors(split.texts()).numpy()[:, model.label_vectors.columns[head]]
    labels = model.label_vectors.numpy(head)
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
    assert report[head][f"P@{k}"] == pytest.approx(hits_by_hand(model, tiny_data, head, k))
    with pytest.raises(KeyError, match=f"no metric 'P@9'; there are P@{k}"):
        report[head]["P@9"]
    with pytest.raises(KeyError, match=f"no head 'best'; there are {head}"):
        report["best"]


def test_labels_that_are_filtered_for_a_query_make_room_for_the_next(model, tiny_data):
    test = tiny_data["test"]
    best = model.predict(test.texts(), 5, head="combined").rows
    pairs = np.column_stack([np.repeat(np.arange(len(test)), 5), best.ravel()])
    filtered = dataclasses.replace(test, filters=pairs)
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": filtered})
    report = umpteen.evaluate(model, data, head="combined", metrics=["P@5"])["combined"]
    assert report.n_filters == 100
    assert report.values["P@5"] == pytest.approx(hits_by_hand(model, data, "combined", 5))
    assert report.values["P@5"] > 0


def test_tokens_that_are_known_give_the_same_numbers(model, tiny_data):
    from umpteen.data.tokens import TokenStore, encode

    ragged = encode(
        tiny_data["test"].texts(), model.encoder.tokenizer, max_tokens=model.text_config.max_tokens
    )
    known = umpteen.evaluate(model, tiny_data, tokens=TokenStore(ragged.ids, ragged.offsets))
    assert known.as_json() == umpteen.evaluate(model, tiny_data).as_json()


def test_the_document_holds_every_head_and_the_constants(model, tiny_data):
    document = umpteen.evaluate(model, tiny_data).as_json()
    assert list(document["heads"]) == ["dual", "classifier", "combined", "ensemble"]
    assert document["unknown_labels"] == 0
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
    options = ("data.text=title", "train.epochs=1", "ensemble.enabled=off")
    model = fit(tiny_data, tmp_path, *options)
    loaded = umpteen.Predictor.load(tmp_path)
    assert loaded.text_config.text == "title"
    expected = umpteen.evaluate(model, tiny_data).as_json()
    assert umpteen.evaluate(loaded, data).as_json() == expected


# -- labels are matched by id ---------------------------------------------------------------------


def renamed(data, order, names=None, splits=("train", "test")):
    """The same data with labels in another order, under other ids where ``names`` has them."""
    ids = [(names or {}).get(data.labels.ids[row], data.labels.ids[row]) for row in order]
    labels = LabelSet(ids, [data.labels.titles[row] for row in order])
    place = np.empty(len(data.labels), np.int64)
    place[order] = np.arange(len(order))
    parts = {}
    for name in splits:
        split = data[name]
        rows = [place[split.targets[i].indices].tolist() for i in range(len(split))]
        filters = np.column_stack([split.filters[:, 0], place[split.filters[:, 1]]])
        targets = targets_from_rows(rows, len(labels))
        parts[name] = dataclasses.replace(split, targets=targets, filters=filters)
    return Dataset(labels, parts, name="renamed")


def test_the_order_of_labels_does_not_matter(model, tiny_data):
    order = np.random.default_rng(3).permutation(40)
    wanted = umpteen.evaluate(model, tiny_data).as_json()
    found = umpteen.evaluate(model, renamed(tiny_data, order)).as_json()
    # Label frequencies of the run are those of the training texts, as in the data.
    assert found == wanted


@pytest.mark.parametrize("to", ["jsonl", "csv"])
def test_a_test_file_alone_can_be_evaluated(to, model, tiny_data, tmp_path):
    order = np.random.default_rng(3).permutation(40)
    save_dataset(renamed(tiny_data, order, splits=("train", "test")), tmp_path / "data", to=to)
    file = next((tmp_path / "data").glob("test.*"))
    alone = tmp_path / file.name.replace("test", "some")
    alone.write_bytes(file.read_bytes())
    found = umpteen.evaluate(model, str(alone), metrics=["P@1", "P@5"])
    # Formats without filter pairs cannot keep them.
    unfiltered = dataclasses.replace(tiny_data["test"], filters=np.zeros((0, 2), np.int64))
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": unfiltered})
    wanted = umpteen.evaluate(model, data, metrics=["P@1", "P@5"])
    assert {h: r.values for h, r in found.heads.items()} == {
        h: r.values for h, r in wanted.heads.items()
    }
    assert found.unknown_labels == 0
    assert found["dual"].n == 20


def test_a_subset_of_the_labels_is_enough(model, tiny_data):
    test = tiny_data["test"]
    few = [row for row in range(20) if set(test.targets[row].indices) <= set(range(30))]
    texts = [test.texts()[row] for row in few]
    ids = [[tiny_data.labels.ids[label] for label in test.targets[row].indices] for row in few]
    used = sorted({label for own in ids for label in own}, reverse=True)
    labels = LabelSet(used, used)
    rows = [[used.index(label) for label in own] for own in ids]
    data = Dataset(labels, {"test": Split(texts, targets_from_rows(rows, len(used)))})
    found = umpteen.evaluate(model, data, metrics=["P@1", "PSP@1"])
    top = model.as_trained().predict(texts, 1)
    hits = [top.ids[i][0] in ids[i] for i in range(len(few))]
    assert found["ensemble"].values["P@1"] == pytest.approx(100 * np.mean(hits))
    assert found["ensemble"].values["PSP@1"] > 0


def test_unknown_labels_are_counted_and_count_as_misses(model, tiny_data):
    names = {"L03": "X03", "L11": "X11", "L39": "X39"}
    data = renamed(tiny_data, np.arange(40)[::-1].copy(), names)
    found = umpteen.evaluate(model, data, metrics=["R@40", "P@1"])
    test = tiny_data["test"]
    pairs = {(q, r) for q, r in test.filters.tolist()}
    hits, wanted = 0, []
    for query in range(20):
        own = [r for r in test.targets[query].indices if (query, r) not in pairs]
        hits = sum(tiny_data.labels.ids[r] not in names for r in own)
        wanted.append(hits / len(own))
    assert found.unknown_labels == sum(
        bool(test.targets[:, tiny_data.labels.row(label)].nnz) for label in names
    )
    assert found.unknown_labels > 0
    assert found["combined"].values["R@40"] == pytest.approx(100 * np.mean(wanted))
    assert found.as_json()["unknown_labels"] == found.unknown_labels


def test_data_without_any_known_label_is_a_sentence(model, tiny_data):
    data = renamed(tiny_data, np.arange(40), {label: f"X{label}" for label in tiny_data.labels.ids})
    with pytest.raises(
        DataError, match=r"no label of the data is in the run \('XL00', .* matched by id"
    ):
        umpteen.evaluate(model, data)


# -- the ensemble ---------------------------------------------------------------------------------


def test_the_ensemble_has_sets_and_their_calibration(model, tiny_data):
    document = umpteen.evaluate(model, tiny_data).as_json()
    sets = document["sets"]
    assert 0 <= sets["expected_calibration_error"] <= 100
    assert {"micro_f1", "macro_f1", "labels_per_query"} == set(sets["auto"]) == set(sets["groups"])
    assert "sets" not in umpteen.evaluate(model, tiny_data, head="dual").as_json()
    # The vocabulary of the tiny data decides everything, and a lexical scorer is included.
    assert document["heads"]["ensemble"]["P@1"] >= document["heads"]["combined"]["P@1"] - 5


def test_sets_are_those_of_predictions_with_the_threshold(model, tiny_data):
    unfiltered = dataclasses.replace(tiny_data["test"], filters=np.zeros((0, 2), np.int64))
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": unfiltered})
    sets = umpteen.evaluate(model, data, head="ensemble").sets
    for threshold in ("auto", "groups"):
        top = model.predict(unfiltered.texts(), 10, threshold=threshold)
        right = predicted = 0
        for query, ids in enumerate(top.ids):
            own = {tiny_data.labels.ids[r] for r in unfiltered.targets[query].indices}
            right += len(own & set(ids))
            predicted += len(ids)
        f1 = 200 * right / (predicted + unfiltered.targets.nnz)
        assert sets[threshold]["micro_f1"] == pytest.approx(f1)
        assert sets[threshold]["labels_per_query"] == pytest.approx(predicted / 20)


def test_sets_do_not_depend_on_the_metrics(model, tiny_data, monkeypatch):
    monkeypatch.setattr("umpteen.ranking.ranker.DEPTH", 6)  # of 40 labels, as 40 of many
    few, many = (
        umpteen.evaluate(model, tiny_data, head="ensemble", metrics=metrics).sets
        for metrics in (["P@1"], ["P@1", "R@100"])
    )
    assert few == many


@pytest.mark.parametrize("scorer", ["dual", "classifier", "knn", "lexical"])
def test_scorers_can_be_left_out(scorer, model, tiny_data):
    found = umpteen.evaluate(model, tiny_data, head="ensemble", without=[scorer])
    top = model.predict(tiny_data["test"].texts(), 5, without=[scorer],
                        exclude=tiny_data["test"].filters)  # fmt: skip
    hits = [tiny_data["test"].targets[q, row] > 0 for q, row in enumerate(top.rows[:, 0])]
    assert found["ensemble"].values["P@1"] == pytest.approx(100 * np.mean(hits))


def test_changes_after_training_do_not_count(tiny_run, tiny_data, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    model = umpteen.Predictor.load(run)
    before = umpteen.evaluate(model, tiny_data).as_json()
    texts = tiny_data["test"].texts()
    model.add_examples(texts, [["L00"]] * len(texts))
    model.add_labels({"N0": "purple lantern"})
    model.retire_labels(["L00"])
    assert umpteen.evaluate(model, tiny_data).as_json() == before


def test_the_folder_of_a_run_is_a_model(model, tiny_run, tiny_data):
    wanted = umpteen.evaluate(model, tiny_data, metrics=["P@1"]).as_json()
    assert umpteen.evaluate(str(tiny_run), tiny_data, metrics=["P@1"]).as_json() == wanted


def test_texts_that_were_trained_on_are_counted(model, tiny_data):
    known = model.snapshot().examples.n_trained
    whole = umpteen.evaluate(model, tiny_data, split="train", metrics=["P@1"])
    assert whole.trained_texts >= known > 0  # a held-out text may be as a trained one
    assert "training texts" in whole._repr_html_()
    other = umpteen.evaluate(model, ["a text of its own"], [["L00"]], metrics=["P@1"])
    assert other.trained_texts == 0
    assert "training texts" not in other._repr_html_()


def test_what_is_not_there_is_a_sentence(model, tiny_data):
    with pytest.raises(ConfigError, match="the model is Dataset; pass a Predictor"):
        umpteen.evaluate(tiny_data, model)
    with pytest.raises(DataError, match="no 'validation' split"):
        umpteen.evaluate(model, tiny_data, split="validation")
    with pytest.raises(ConfigError, match="has no head"):
        umpteen.evaluate(model, tiny_data, head="both")
    with pytest.raises(ConfigError, match="P@x"):
        umpteen.evaluate(model, tiny_data, metrics=["P@x"])
