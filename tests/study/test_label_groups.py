"""Labels by their training texts: groups that are measured alone, and labels that are hidden."""

import dataclasses

import numpy as np
import pytest

import umpteen
from umpteen.errors import ConfigError
from umpteen.study.definition import read_study
from umpteen.study.outcomes import group_metrics
from umpteen.study.sources import hide_labels


def by_hand(model, data, own, k=5):
    """Mean R-precision over the texts with a positive in the group, label by label."""
    split = data["test"]
    vectors = model.vectors(split.texts()).numpy()[:, model.label_vectors.columns["combined"]]
    labels = model.label_vectors.numpy("combined")
    filters = {tuple(pair) for pair in split.filters.tolist()}
    found = []
    for query in range(len(split)):
        allowed = [label for label in own if (query, label) not in filters]
        right = set(split.targets[query].indices.tolist()) & set(allowed)
        if right:
            best = sorted(allowed, key=lambda label: -float(vectors[query] @ labels[label]))[:k]
            found.append(len(right & set(best)) / min(k, len(right)))
    return 100 * float(np.mean(found)), len(found)


def test_groups_are_ranked_alone_and_texts_without_their_labels_left_out(tiny_run, tiny_data):
    model = umpteen.Predictor.load(tiny_run, device="cpu")
    counts = np.asarray(tiny_data.label_counts)
    middle = int(np.median(counts))
    groups = {"few": (1, middle), "none": (10**6, 10**7)}
    found = group_metrics(model, tiny_data, groups, head="combined")
    own = np.flatnonzero((counts >= 1) & (counts <= middle)).tolist()
    expected, texts = by_hand(model, tiny_data, own)
    assert found["few"]["RP@5"] == pytest.approx(expected)
    assert (found["few"]["labels"], found["few"]["texts"]) == (len(own), texts)
    assert found["none"] == {"labels": 0, "texts": 0}


def test_hidden_labels_are_left_in_test_alone(tiny_data):
    counts = np.asarray(tiny_data.label_counts)
    hidden = hide_labels(tiny_data, 3)
    gone = np.flatnonzero((counts > 0) & (np.asarray(hidden.label_counts) == 0))
    assert len(gone) == 3
    assert (counts[gone] <= 50).all()
    assert hidden["test"] is tiny_data["test"]
    assert hidden["train"].targets.nnz == tiny_data["train"].targets.nnz - counts[gone].sum()
    again = hide_labels(tiny_data, 3)
    assert (again["train"].targets != hidden["train"].targets).nnz == 0


def test_groups_that_are_no_range_are_refused(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('[groups]\nfew = [50, 1]\n[data.x]\npath = "x"\n[switches.plain]\n')
    with pytest.raises(ConfigError, match="least and most training queries"):
        read_study(file)


def test_the_values_of_queries_are_kept_where_they_are_asked_for(tiny_run, tiny_data):
    model = umpteen.Predictor.load(tiny_run, device="cpu")
    names = ["P@5", "PSP@1", "C@5"]
    report = umpteen.evaluate(model, tiny_data, head="dual", metrics=names, per_query=True)["dual"]
    assert set(report.per_query) == {"P@5", "PSP@1"}  # coverage is no mean over queries
    for name, values in report.per_query.items():
        assert len(values) == report.n
        assert values.mean() == pytest.approx(report.values[name])
    plain = dataclasses.replace(report, per_query={})
    assert umpteen.evaluate(model, tiny_data, head="dual", metrics=names)["dual"] == plain
