"""Predictions as sequences, lists, frames, matrices, short text and HTML."""

import json

import numpy as np
import pandas as pd
import pytest

import umpteen
from umpteen.data.labels import LabelSet
from umpteen.predictions import PredictedLabel

LABELS = LabelSet(["a", "b", "<c>", "d"], ["apple", "pear", "", "date"])
INF = float("inf")


@pytest.fixture
def top():
    rows = np.array([[2, 0, 3], [1, -1, -1], [-1, -1, -1]])
    scores = np.array([[0.75, 0.5, 0.25], [0.9, -INF, -INF], [-INF] * 3], np.float32)
    return umpteen.TopK(rows, scores, LABELS, [None, None, "no word"], queries=["x", "y", "<z>"])


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


def test_a_place_holds_the_labels_of_one_text(top):
    assert len(top) == 3
    assert top[0].ids == ["<c>", "a", "d"]
    assert top[0].texts == ["<c>", "apple", "date"]
    assert top[-2].ids == ["b"]
    assert (len(top[2]), top[2].note, top[2].query) == (0, "no word", "<z>")
    assert list(top[0]) == [
        PredictedLabel("<c>", "<c>", 0.75), ("a", "apple", 0.5), ("d", "date", 0.25)
    ]  # fmt: skip
    assert top[0][1].id == "a"
    assert [label.score for label in top[0][:2]] == [0.75, 0.5]
    with pytest.raises(IndexError, match="no text 3: these are the predictions of 3 texts"):
        top[3]
    with pytest.raises(TypeError):
        top["a"]


def test_a_loop_goes_over_texts(top):
    assert [one.ids for one in top] == top.ids
    assert [[label.id for label in one] for one in top] == top.ids


def test_a_slice_is_a_topk(top):
    part = top[1:]
    assert isinstance(part, umpteen.TopK)
    assert part.ids == [["b"], []]
    assert part.notes == [None, "no word"]
    assert part.queries == ["y", "<z>"]
    assert len(top[5:]) == 0


@pytest.mark.parametrize("which", [[2, 0], np.array([2, 0]), [-1, -3]])
def test_texts_are_chosen_by_a_list_or_a_mask(which, top):
    part = top[which]
    assert part.ids == [[], ["<c>", "a", "d"]]
    assert part.notes == ["no word", None]
    assert part.queries == ["<z>", "x"]
    assert top[np.array([False, True, False])].ids == top[[False, True, False]].ids == [["b"]]
    assert len(top[[]]) == 0


def test_a_list_holds_json_values(top):
    found = json.loads(json.dumps(top.to_list()))
    assert found[1] == [{"id": "b", "text": "pear", "score": 0.9}]
    assert [len(line) for line in found] == [3, 1, 0]


def test_a_frame_has_a_row_for_each_label(top):
    frame = top.to_frame()
    assert list(frame.columns) == ["rank", "id", "text", "score"]
    assert frame.index.tolist() == [0, 0, 0, 1]
    assert frame.index.name == "query"
    assert frame["id"].tolist() == ["<c>", "a", "d", "b"]
    assert frame["rank"].tolist() == [1, 2, 3, 1]
    own = top.to_frame(index=pd.Index(["q7", "q8", "q9"], name="doc"))
    assert own.index.tolist() == ["q7", "q7", "q7", "q8"]
    assert own.index.name == "doc"
    with pytest.raises(ValueError, match="2 values for 3 texts"):
        top.to_frame(index=[1, 2])


def test_a_matrix_holds_the_scores(top):
    matrix = top.to_csr()
    wanted = [[0.5, 0, 0.75, 0.25], [0, 0.9, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(matrix.toarray(), wanted)
    assert matrix.has_sorted_indices
    bare = umpteen.TopK(top.rows, top.scores)
    assert bare.to_csr(n_labels=9).shape == (3, 9)
    with pytest.raises(ValueError, match="give n_labels"):
        bare.to_csr()


def test_reprs_are_short(top, tiny_data, model):
    many = model.predict([f"about red apple {n}" for n in range(300)], 40)
    for value in (many, many[0], tiny_data, tiny_data["train"], tiny_data.labels, model):
        assert len(repr(value)) < 800
    assert repr(top).splitlines() == [
        "TopK(3 texts, k=3)",
        "  0: <c> 0.750, a 0.500, d 0.250",
        "  1: b 0.900",
        "  2: no label",
    ]
    assert repr(many).endswith("and 295 texts more")
    assert repr(tiny_data) == "Dataset('tiny', train 60 texts, test 20 texts, 40 labels)"
    assert repr(tiny_data.labels) == "LabelSet(40 labels: 'L00', 'L01', 'L02', ..)"
    assert repr(umpteen.TopK(top.rows, top.scores)) == "TopK(3 texts, k=3)"
    assert "40 labels, head 'ensemble'" in repr(model)


def test_html_is_escaped_and_bounded(top, tiny_data, model):
    shown = top._repr_html_()
    assert "&lt;c&gt;" in shown
    assert "&lt;z&gt;" in shown
    assert "<c>" not in shown
    assert "no word" in shown
    many = model.predict([f"about red apple {n}" for n in range(300)], 40, explain=True)
    assert "299 more texts" in many._repr_html_()
    assert "&lt;c&gt;" in top[0]._repr_html_()
    for name in ("dual", "classifier", "knn", "lexical"):
        assert f"<th>{name}</th>" in many[0]._repr_html_()
        assert f"<th>{name}</th>" in many.explanations._repr_html_()
    assert len(many.explanations._repr_html_()) < 60_000
    assert len(repr(many.explanations)) < 200
    assert "tiny: 40 labels" in tiny_data._repr_html_()
    assert "L00" in tiny_data._repr_html_()
    assert "and 55 texts more" in tiny_data["train"]._repr_html_()


def test_an_evaluation_is_a_table(tiny_data, model):
    result = umpteen.evaluate(model, tiny_data, metrics=["P@1", "PSP@5"])
    assert repr(result).startswith("Evaluation(20 texts)\n  dual: P@1 ")
    assert len(repr(result)) < 400
    assert "<th>ensemble</th>" in result._repr_html_()
    frame = result.to_frame()
    assert frame.loc["P@1", "ensemble"] == result["ensemble"].values["P@1"]
    assert list(frame.index) == ["P@1", "PSP@5"]


def test_predictions_know_their_texts_and_explanations(model):
    texts = ["about red apple", "old river"]
    for options in ({"explain": True}, {"head": "dual"}, {"threshold": 0.01}):
        top = model.predict(texts, 4, **options)
        assert [one.query for one in top] == texts
    top = model.predict(texts, 4, explain=True)
    frame = top.to_frame()
    entry = top.explanations[1][2]["contributions"]
    for name, value in entry.items():
        assert frame[f"contribution_{name}"].iloc[6] == pytest.approx(value)
    assert top[1].to_list()[2]["contributions"] == entry
    assert top[1:].to_frame().shape == (4, frame.shape[1])
    assert top.cut(2).to_frame().shape == (4, frame.shape[1])


def test_a_threshold_returns_up_to_20_labels_unless_told(model):
    assert model.predict("about red apple").rows.shape == (1, 10)
    assert model.predict("about red apple", threshold=0.0).rows.shape == (1, 20)
    assert model.predict("about red apple", 3, threshold="auto").rows.shape == (1, 3)
