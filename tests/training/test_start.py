"""``umpteen.start``: a run from label names, and what works on it."""

import numpy as np
import pytest

import umpteen
from umpteen.errors import DataError, RunError
from umpteen.training.run import train
from umpteen.training.self_training import pseudo_label_vectors
from umpteen.training.start import start

NAMES = {
    "fruit": "fruit such as apples and pears",
    "kitchen": "kitchen appliances: ovens and fridges",
    "vehicle": "vehicles: cars, bicycles and trains",
    "music": "music and instruments",
}
TEXTS = [
    "please note: the red car does not start",
    "please note: a bicycle with a flat tyre",
    "please note: apples and a pear on the table",
    "please note: the oven is hot",
    "please note: she plays the violin",
    "please note: pears are ripe",
]
LABELS = [["vehicle"], ["vehicle"], ["fruit"], ["kitchen"], ["music"], ["fruit"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("start") / "run"
    start(NAMES, TEXTS, out=out, device="cpu")
    return out


def copied(run, tmp_path):
    model = umpteen.Predictor.load(run, device="cpu")
    model.save(tmp_path / "copy")
    return umpteen.Predictor.load(tmp_path / "copy", device="cpu")


def test_labels_are_found_by_their_names(run):
    model = umpteen.Predictor.load(run, device="cpu")
    top = model.predict(TEXTS, k=2, explain=True)
    assert [ids[0] for ids in top.ids] == [labels[0] for labels in LABELS]
    assert ((top.scores > 0) & (top.scores < 1)).all()
    parts = top.explanations[0][0]["contributions"]
    assert set(parts) >= {"dual", "lexical", "knn"}
    assert model.heads == ("dual", "ensemble")


def test_a_batch_gives_the_same_as_single_texts(run):
    model = umpteen.Predictor.load(run, device="cpu")
    whole = model.predict(TEXTS, k=4)
    for row, text in enumerate(TEXTS):
        one = model.predict(text, k=4)
        assert one.ids[0] == whole.ids[row]
        assert np.allclose(one.scores[0], whole.scores[row], atol=1e-5)


def test_unknown_words_and_empty_texts(run):
    model = umpteen.Predictor.load(run, device="cpu")
    top = model.predict(["violin concert", "", "zzqqy"], k=1)
    assert top.ids[0] == ["music"]  # no common word: by vectors alone
    assert top.notes[0] is None
    assert top.notes[1] == "the text is empty"
    assert top.scores[1, 0] == 0


def test_the_first_correction_changes_answers_of_similar_texts_only(run, tmp_path):
    model = copied(run, tmp_path)
    near, far = "my tractor needs new tyres", "she sings a song"
    before = model.predict([near, far], k=4)
    model.add_examples("tractor with new tyres", ["kitchen"])
    after = model.predict([near, far, "tractor with new tyres"], k=4)

    def score(top, row, label):
        return dict(zip(top.ids[row], top.scores[row], strict=True))[label]

    assert score(after, 0, "kitchen") > score(before, 0, "kitchen") + 0.05
    assert after.ids[2][0] == "kitchen"
    assert after.ids[1] == before.ids[1]
    assert np.allclose(after.scores[1], before.scores[1], atol=0.02)


def test_labels_can_be_added(run, tmp_path):
    model = copied(run, tmp_path)
    model.add_labels({"tax": "income tax and customs duties"})
    assert model.predict("how much income tax do I pay", k=1).ids == [["tax"]]


def test_evaluate(run):
    model = umpteen.Predictor.load(run, device="cpu")
    report = umpteen.evaluate(model, umpteen.Dataset.from_lists(TEXTS, LABELS), split="train")
    assert report.heads["ensemble"].values["P@1"] == 100.0
    assert report.heads["ensemble"].values["PSP@1"] == 100.0  # all labels count the same


def test_self_training_moves_labels_towards_texts(run):
    plain = umpteen.Predictor.load(run, device="cpu")
    top = plain.predict(TEXTS, k=1)
    used = np.argsort(-top.scores[:, 0], kind="stable")[: len(TEXTS) // 2]
    texts = plain.vectors(TEXTS).numpy()
    before, after = plain.label_vectors.numpy(), pseudo_label_vectors(plain, TEXTS)
    rows = top.rows[used, 0]
    gains = ((after - before)[rows] * texts[used]).sum(axis=1)
    assert (gains > 0.02).all()
    others = np.setdiff1d(np.arange(len(NAMES)), rows)
    assert len(others)
    assert np.allclose(after[others], before[others], atol=1e-6)


def test_self_training_is_kept_only_if_it_gains_on_labelled_data(tiny_bert):
    lines = []
    data = umpteen.Dataset.from_lists(TEXTS, LABELS)
    start(NAMES, TEXTS, check=data, encoder=str(tiny_bert), device="cpu", log=lines.append)
    (line,) = (each for each in lines if each.startswith("Self-training on 6 texts: P@1 "))
    gain = float(line.split("P@1 ")[1].split(",")[0])
    assert line.endswith("kept" if gain > 0 else "left out")
    assert lines[-1].startswith("On the data to check with: P@1 ")


def test_one_label_and_any_encoder(tiny_bert):
    model = start(["fruit"], encoder=str(tiny_bert), device="cpu")
    assert model.predict("an apple", k=3).ids == [["fruit"]]


def test_what_is_in_the_way(run, tiny_bert, tmp_path):
    with pytest.raises(RunError, match="not empty; name a new folder"):  # it cannot be resumed
        start(NAMES, out=run, device="cpu")
    with pytest.raises(DataError, match="is a folder; give a file"):
        start(NAMES, str(tmp_path), device="cpu")
    with pytest.raises(DataError, match="does not exist"):
        start(NAMES, "no-such-file.txt", device="cpu")
    with pytest.raises(DataError, match="unlabelled texts"):
        start(NAMES, out=tmp_path / "new", self_training=True, encoder=str(tiny_bert), device="cpu")
    assert not (tmp_path / "new").exists()  # nothing is left behind


def test_it_turns_into_a_trained_run(tiny_bert, tmp_path):
    begun = start(NAMES, out=tmp_path / "begun", encoder=str(tiny_bert), device="cpu")
    begun.add_labels({"tax": "income tax"})
    begun.add_examples("customs duties", ["tax"])
    data = umpteen.Dataset.from_lists(TEXTS, LABELS, label_texts=NAMES)
    model = train(
        data,
        out=tmp_path / "trained",
        from_run=tmp_path / "begun",
        overrides=["train.epochs=1", "ensemble.enabled=off", "model.dim=16", "data.max_tokens=32"],
        device="cpu",
    )
    assert list(model.labels.ids) == [*data.labels.ids, "tax"]
    assert model.label_counts[model.labels.rows["tax"]] == 1  # the correction is a training text
    assert model.heads[-1] == "combined"


def test_too_few_texts_to_train_on_are_refused(run, tmp_path):
    data = umpteen.Dataset.from_lists(TEXTS, LABELS, label_texts=NAMES)
    with pytest.raises(DataError, match=r"^6 labelled texts cannot improve .* examples add$"):
        train(data, out=tmp_path / "out", from_run=run, device="cpu")
    assert not (tmp_path / "out" / "config.json").exists()


def texts_of_labels():
    """Texts about one label each, enough to cross-validate an ensemble."""
    things = {
        "fruit": "apples pears plums cherries",
        "kitchen": "ovens fridges kettles stoves",
        "vehicle": "cars bicycles trains buses",
        "music": "violins drums pianos flutes",
    }
    pairs = [
        (f"please note {word} {thing}", name)
        for word in ("old", "new")
        for name in things
        for thing in things[name].split()
    ]
    return [text for text, _ in pairs], [[name] for _, name in pairs]


def test_a_trained_run_keeps_the_scorer_of_names(run, tmp_path):
    texts, labels = texts_of_labels()
    given = ["train.epochs=2", "ensemble.min_queries=2"]
    names = {**NAMES, "tool": "tools such as hammers", "fruit": "berries"}
    data = umpteen.Dataset.from_lists(texts, labels, label_texts=names)
    first = train(data, out=tmp_path / "first", from_run=run, overrides=given, device="cpu")
    start = umpteen.Predictor.load(run, device="cpu")
    kept = first._ranker.retrievers["names"]
    before = dict(zip(start.labels.ids, start.label_vectors.numpy(), strict=True))
    own = dict(zip(first.labels.ids, kept.label_vectors.numpy(), strict=True))
    for name in ("kitchen", "vehicle", "music"):
        assert np.array_equal(own[name], before[name])
    # A new label, and one with another text, are encoded.
    for name in ("tool", "fruit"):
        assert np.allclose(own[name], start.vectors([names[name]])[0], atol=1e-6)
    scorers = {scorer for variant in first.ensemble.variants for scorer in variant.scorers}
    assert "names" in scorers
    second = train(
        data, out=tmp_path / "second", from_run=tmp_path / "first", overrides=given, device="cpu"
    )
    again = second._ranker.retrievers["names"].label_vectors.numpy()
    order = [first.labels.row(i) for i in second.labels.ids]
    assert np.array_equal(again, kept.label_vectors.numpy()[order])
