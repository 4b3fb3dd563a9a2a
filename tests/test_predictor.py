"""The Python interface, heads against plain arithmetic, damaged run folders, and indexes."""

import json
import shutil

import numpy as np
import pytest
import torch
from small_runs import fit, stop_at

import umpteen
from umpteen.errors import ConfigError, DataError, LabelMismatch, RunError, UmpteenError
from umpteen.ranking import ranker
from umpteen.ranking.queries import Queries, QueryStream

TEXTS = ["about red apple quite", "old river", "", "ünïcödé 日本 🎉", "blue " * 100]


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def test_train_predict_evaluate_and_load_work_together(tiny_data_folder, tmp_path):
    data = umpteen.load_dataset(str(tiny_data_folder))
    small = tmp_path / "small.toml"
    small.write_text(
        'encoder = {table = "random", dim = 16}\nmodel = {dim = 16}\ntrain = {epochs = 2}\n'
    )
    model = umpteen.train(data, preset=str(small), out=str(tmp_path / "run"))
    assert isinstance(model, umpteen.Predictor)
    top = model.predict(["some text"], k=5)
    assert isinstance(top, umpteen.TopK)
    assert top.rows.shape == top.scores.shape == (1, 5)
    assert (top.rows.dtype, top.scores.dtype) == (np.int64, np.float32)
    assert top.ids == [[data.labels.ids[row] for row in top.rows[0]]]
    assert top.texts == [[data.labels.titles[row] for row in top.rows[0]]]
    report = umpteen.evaluate(model, data, split="test")
    assert set(report.heads) == {"dual", "classifier", "combined", "ensemble"}
    loaded = umpteen.Predictor.load(str(tmp_path / "run"))
    np.testing.assert_array_equal(loaded.predict(["some text"], k=5).rows, top.rows)
    one = model.predict("some text", threshold="auto", explain=True)
    assert len(one.explanations[0]) == len(one.ids[0])
    model.save(tmp_path / "copy")
    copied = umpteen.Predictor.load(tmp_path / "copy")
    np.testing.assert_array_equal(copied.predict(["some text"], k=5).rows, top.rows)
    with pytest.raises(RunError, match="exists; name a folder that does not"):
        model.save(tmp_path / "copy")


def test_lists_can_be_trained_on(tmp_path):
    texts = ["red apple pie", "green apple", "long banana"]
    data = umpteen.Dataset.from_lists(
        texts, [["a"], ["a"], ["b"]], label_texts={"a": "apple", "b": "banana"}
    )
    model = fit(data, tmp_path, "train.epochs=1", "validation.share=0")
    assert sorted(model.predict("apple", 2).ids[0]) == ["a", "b"]


def test_a_text_alone_gets_the_vector_it_gets_among_others(model):
    together = model.vectors(TEXTS)
    for text, wanted in zip(TEXTS, together, strict=True):
        alone = model.vectors([text])
        assert alone.dtype == torch.float32
        assert not alone.requires_grad
        # A product of another shape may round differently, in the last bits.
        torch.testing.assert_close(alone[0], wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
def test_a_head_ranks_by_its_cosines(head, model):
    queries = model.vectors(TEXTS).numpy().astype(np.float64)
    labels = np.asarray(model.label_vectors.numpy("combined"), np.float64)
    part = {"dual": slice(0, 16), "classifier": slice(16, 32)}.get(head, slice(0, 32))
    scores = queries[:, part] @ labels[:, part].T
    top = model.predict(TEXTS, 40, head=head)
    np.testing.assert_allclose(top.scores, -np.sort(-scores, axis=1), atol=1e-5)
    np.testing.assert_allclose(top.scores, np.take_along_axis(scores, top.rows, 1), atol=1e-5)
    assert np.abs(scores).max() <= (2 if part.stop - part.start == 32 else 1) + 1e-6


def test_a_text_gets_the_same_labels_alone_and_among_others(model):
    together = model.predict(TEXTS, 5)
    for place, text in enumerate(TEXTS):
        alone = model.predict(text, 5)
        np.testing.assert_allclose(alone.scores[0], together.scores[place], atol=1e-5)


def test_more_labels_than_there_are_is_filled_up(model):
    top = model.predict(["red apple"], 50)
    assert (top.rows[0] >= 0).sum() == 40
    assert (top.rows[0, 40:] == -1).all()
    assert np.isneginf(top.scores[0, 40:]).all()
    assert len(top.ids[0]) == len(top.texts[0]) == 40


@pytest.mark.parametrize("head", ["combined", "ensemble"])
def test_excluded_pairs_and_labels_that_are_not_allowed_are_not_returned(head, model):
    best = model.predict(TEXTS[:2], 3, head=head)
    again = model.predict(TEXTS[:2], 3, head=head, exclude=np.array([[1, best.rows[1, 0]]]))
    np.testing.assert_array_equal(again.rows[0], best.rows[0])
    np.testing.assert_array_equal(again.rows[1, :2], best.rows[1, 1:])
    allowed = np.ones(40, bool)
    allowed[best.rows.ravel()] = False
    others = model.predict(TEXTS[:2], 3, head=head, allowed=allowed)
    assert allowed[others.rows].all()
    with pytest.raises(ValueError, match=r"allowed must be \(40,\) bool"):
        model.predict(TEXTS[:2], 3, head=head, allowed=np.ones(41, bool))


def test_one_index_at_a_time_gives_the_same_labels(model):
    parts = (model.model, model.encoder.tokenizer, model.text_config, model.labels)
    vectors = model.label_vectors.numpy("combined")
    lean = umpteen.Predictor(*parts, vectors, model.label_counts, low_memory=True)
    for head in (*model.vector_heads, *model.vector_heads):
        ours, theirs = (each.predict(TEXTS, 5, head=head) for each in (lean, model))
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        assert list(lean.label_vectors._indexes) == [head]


def test_a_predictor_without_a_run_folder_refuses_changes(model):
    parts = (model.model, model.encoder.tokenizer, model.text_config, model.labels)
    alone = umpteen.Predictor(*parts, model.label_vectors.numpy("combined"), model.label_counts)
    changes = [
        lambda: alone.add_labels({"N": "new"}),
        lambda: alone.retire_labels(["L00"]),
        lambda: alone.restore_labels(["L00"]),
        lambda: alone.add_examples(["text"], [["L00"]]),
    ]
    for change in changes:
        with pytest.raises(RunError, match="loaded from a run folder can be changed"):
            change()
    with pytest.raises(RunError, match="loaded from a run folder can be saved"):
        alone.save("somewhere")
    with pytest.raises(RunError, match="can be changed"):
        model.as_trained().add_labels({"N": "new"})
    assert alone.predict("red apple", 1).rows.shape == (1, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_trained_table_stays_in_its_file(tiny_run, model):
    there = umpteen.Predictor.load(tiny_run, device="cuda")
    assert there.model.log_scales.is_cuda
    assert there.model.label_vectors.device.type == "cpu"
    parts = (there.model, there.encoder.tokenizer, there.text_config, there.labels)
    vectors = torch.from_numpy(model.label_vectors.numpy("combined"))
    lean = umpteen.Predictor(*parts, vectors, there.label_counts, low_memory=True)
    wanted = model.predict(TEXTS, 5, head="combined")
    for each in (there, lean):
        found = each.predict(TEXTS, 5, head="combined")
        np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-3, atol=1e-4)
    assert lean.label_vectors.index("combined").vectors.device.type == "cpu"


@pytest.mark.parametrize("head", ["dual", "combined", "ensemble"])
def test_no_text_gives_no_labels(head, model):
    top = model.predict([], 5, head=head)
    assert top.rows.shape == top.scores.shape == (0, 5)
    assert top.ids == []


def test_only_texts_are_accepted(model):
    with pytest.raises(DataError, match=r"texts\[1\] is int, not text"):
        model.predict(["a", 3])
    with pytest.raises(DataError, match="texts is a dict; pass the texts alone"):
        model.predict({"text": ["a"]})


@pytest.mark.parametrize("k", [0, -1, 2.5, "5", True])
def test_k_is_a_whole_number_from_1_on(k, model):
    with pytest.raises(ConfigError, match="give a whole number from 1 on"):
        model.predict("a", k)


def test_an_unknown_head_is_a_sentence(model):
    with pytest.raises(
        ConfigError, match="has no head 'both'; it has: dual, classifier, combined, ensemble"
    ):
        model.predict(["x"], head="both")
    with pytest.raises(ConfigError, match="has no head"):
        model.predict([], head="both")


def test_the_best_and_the_last_model_can_be_told_apart(tiny_run):
    names = json.loads((tiny_run / "models.json").read_text())
    assert names["best"] != names["last"]
    best, last = (umpteen.Predictor.load(tiny_run, which=which) for which in ("best", "last"))
    assert not torch.equal(best.vectors(TEXTS), last.vectors(TEXTS))
    with pytest.raises(RunError, match="'worst'"):
        umpteen.Predictor.load(tiny_run, which="worst")


# -- damaged folders --------------------------------------------------------------------------


def test_what_is_no_run_is_a_sentence(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="is not a run folder"):
            umpteen.Predictor.load(place)


def test_a_run_that_has_not_finished_an_epoch_is_a_sentence(tiny_data, tmp_path):
    stop_at(1, tiny_data, tmp_path / "run")
    with pytest.raises(RunError, match="no trained model yet; continue it with --resume"):
        umpteen.Predictor.load(tmp_path / "run")


PARTS = [
    "models.json",
    "labels.jsonl",
    "models/best/model.json",
    "models/best/heads.safetensors",
    "models/best/vectors.npy",
    "models/best/encoder/encoder.safetensors",
    "models/best/encoder/tokenizer.json",
]


def place_of(run, part):
    best = json.loads((run / "models.json").read_text())["best"]
    return run / part.replace("models/best", best)


@pytest.mark.parametrize("damage", ["remove", "empty", "truncate", "garbage", "other json"])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_part_is_a_sentence(part, damage, run):
    file = place_of(run, part)
    raw = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        changed = {"empty": b"", "truncate": raw[: len(raw) // 2], "garbage": b"\x93garbage\xff"}
        file.write_bytes(changed.get(damage, b"[1, 2]"))
    with pytest.raises(UmpteenError) as caught:
        umpteen.Predictor.load(run)
    message = str(caught.value)
    assert str(run) in message
    assert message.count("\n") <= 1


def test_parts_of_different_runs_do_not_go_together(run, tmp_path):
    other = umpteen.Dataset.from_lists(["red apple", "old river"], [["x"], ["y"]])
    fit(other, tmp_path / "other", "train.epochs=1", "validation.share=0")
    shutil.copy(tmp_path / "other" / "labels.jsonl", run / "labels.jsonl")
    with pytest.raises(LabelMismatch, match="fingerprint"):
        umpteen.Predictor.load(run)


def test_vectors_of_another_shape_are_refused(run):
    np.save(place_of(run, "models/best/vectors.npy"), np.zeros((3, 32), np.float32))
    with pytest.raises(RunError, match=r"shape \(3, 32\)"):
        umpteen.Predictor.load(run)


def test_vectors_are_never_unpickled(run):
    file = place_of(run, "models/best/vectors.npy")
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(RunError, match=r"vectors\.npy"):
        umpteen.Predictor.load(run)


# -- indexes ----------------------------------------------------------------------------------


def add_index(run, about, head="combined"):
    from umpteen.index.exact import ExactIndex

    place = run / "index" / head
    vectors = umpteen.Predictor.load(run, with_indexes=False).label_vectors.numpy(head)
    ExactIndex.build(vectors[::-1].copy()).save(place / "index")
    (place / "about.json").write_text(json.dumps(about))


def test_an_index_that_was_built_is_used_and_can_be_left_out(run):
    name = json.loads((run / "models.json").read_text())["best"].removeprefix("models/")

    def combined(**options):
        return umpteen.Predictor.load(run, **options).predict("red apple", 40, head="combined")

    before = combined().rows[0]
    add_index(run, {"kind": "exact", "model": name})  # its labels are in reverse order
    after = combined().rows[0]
    np.testing.assert_array_equal(np.sort(39 - after), np.sort(before))
    assert (39 - after == before).mean() > 0.9
    assert (after != before).any()
    np.testing.assert_array_equal(combined(with_indexes=False).rows[0], before)


def test_an_index_of_another_model_is_a_mismatch(run):
    add_index(run, {"kind": "exact", "model": "epoch-0777"})
    with pytest.raises(LabelMismatch, match="umpteen index"):
        umpteen.Predictor.load(run)


def test_the_last_model_does_not_use_the_index_of_the_best(run):
    name = json.loads((run / "models.json").read_text())["best"].removeprefix("models/")
    before = umpteen.Predictor.load(run, which="last").predict("red apple", 5).rows
    add_index(run, {"kind": "exact", "model": name})
    after = umpteen.Predictor.load(run, which="last").predict("red apple", 5).rows
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("about", [[], {}, {"kind": "exact"}, {"kind": "none", "model": "NAME"}])
def test_a_damaged_index_is_a_sentence(about, run):
    name = json.loads((run / "models.json").read_text())["best"].removeprefix("models/")
    if "model" in about:
        about = {**about, "model": name}
    add_index(run, about)
    with pytest.raises(UmpteenError):
        umpteen.Predictor.load(run)


def test_leftovers_of_a_killed_index_command_are_ignored(run):
    (run / "index" / ".dual.0123abcd.tmp").mkdir(parents=True)
    assert umpteen.Predictor.load(run).predict("red apple", 1).rows.shape == (1, 1)


def test_terms_that_were_counted_beforehand_give_the_same_answer(tiny_run, monkeypatch):
    model = umpteen.Predictor.load(tiny_run)
    texts = [f"{text} number {n}" for n, text in enumerate(["a red lantern", "", "feather"] * 5)]
    plain = model.predict(texts, k=4)
    lexical = model._ranker.retrievers["lexical_ranker"]
    counted = lexical.ranker.vectorizer.transform_raw(texts)
    monkeypatch.setattr(ranker, "TEXTS_AT_ONCE", {"cpu": 4})  # several blocks
    queries = Queries(texts, model.vectors(texts), counted)
    top = model.rank(queries, model.snapshot(), 4)
    np.testing.assert_array_equal(top.rows, plain.rows)
    np.testing.assert_allclose(top.scores, plain.scores, rtol=1e-5)


@pytest.mark.parametrize("size", [1, 4, 15, 40])
def test_texts_that_are_encoded_while_others_are_ranked_give_the_same_answer(
    tiny_run, monkeypatch, size
):
    model = umpteen.Predictor.load(tiny_run)
    texts = [f"{text} number {n}" for n, text in enumerate(["a red lantern", "", "feather"] * 5)]
    exclude = np.array([[0, 1], [7, 2], [14, 0], [14, 3]])
    plain = model.predict(texts, k=4, exclude=exclude)
    counter = model._ranker.retrievers["lexical_ranker"].ranker.vectorizer.transform_raw
    own = model.encoder
    monkeypatch.setattr(ranker, "TEXTS_AT_ONCE", {"cpu": size})
    stream = QueryStream(texts, own.device, own.tokens, counter, own.token_vectors)
    top = model.rank(stream, model.snapshot(), 4, exclude=exclude)
    np.testing.assert_array_equal(top.rows, plain.rows)
    np.testing.assert_allclose(top.scores, plain.scores, rtol=1e-5)
    assert list(top.queries) == texts


def test_an_error_while_texts_are_made_ready_reaches_the_caller(tiny_run):
    model = umpteen.Predictor.load(tiny_run)
    own = model.encoder

    def fail(texts):
        raise ValueError("no terms today")

    stream = QueryStream(["a", "b"], own.device, own.tokens, fail, own.token_vectors)
    with pytest.raises(ValueError, match="no terms today"):
        model.rank(stream, model.snapshot(), 2)
