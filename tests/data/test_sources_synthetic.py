"""Procedural data: sizes, skew, pieces that follow from seed and place, texts that predict."""

import json

import numpy as np
import pytest

from umpteen.data.formats import load_dataset
from umpteen.data.sources import synthetic
from umpteen.errors import ConfigError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("synthetic")
    said = []
    made = synthetic.build(queries=1800, labels=900, test_share=0.1, seed=3)
    sentence = made.write(place, log=said.append)
    assert sentence.startswith("1,800 train and 200 test texts, 900 labels, 2")
    assert len(said) == 3
    return place


def test_it_is_read_as_jsonl_with_the_sizes_it_says(folder):
    data = load_dataset(folder)
    assert (len(data["train"]), len(data["test"]), len(data.labels)) == (1800, 200, 900)
    assert 18 < data["train"].targets.nnz / 1800 < 24
    words = [len(text.split()) for text in data["train"].texts()]
    assert 8 < np.mean(words) < 12
    counts = np.sort(data.label_counts)[::-1]
    assert counts[:9].sum() > 0.05 * counts.sum()


def test_words_of_a_text_are_words_of_its_labels(folder):
    data = load_dataset(folder)
    train, found = data["train"], []
    for row in range(50):
        own = train.targets[row].indices.tolist()
        words = {word for label in own for word in data.labels.titles[label].split()}
        found += [word in words for word in train.titles[row].split()]
    assert np.mean(found) > 0.4


def test_pieces_do_not_depend_on_what_was_written_before(monkeypatch, tmp_path):
    made = synthetic.build(queries=50, labels=40, test_share=0.2, seed=1)
    monkeypatch.setattr(synthetic, "AT_ONCE", 16)
    again = tmp_path / "again"
    for place in (tmp_path, again):
        place.mkdir(exist_ok=True)
        made.write(place)
    for name in ("train.jsonl", "test.jsonl", "labels.jsonl"):
        assert (tmp_path / name).read_bytes() == (again / name).read_bytes()
    own, _ = made.query_words(16, 16)
    line = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[16])
    assert line["labels"] == [f"l{label}" for label in own.values[: own.offsets[1]].tolist()]


@pytest.mark.parametrize(
    "options",
    [{"queries": 0}, {"labels": 0}, {"positives": 99}, {"words": 1}, {"test_share": 1.0}],
)
def test_numbers_out_of_range_are_refused(options):
    with pytest.raises(ConfigError):
        synthetic.build(**options)


def test_every_word_has_its_own_letters():
    names = list(
        synthetic.texts_of(
            synthetic.Pieces(np.arange(synthetic.N_WORDS), np.arange(2) * synthetic.N_WORDS)
        )
    )
    assert len(set(names[0].split())) == synthetic.N_WORDS
