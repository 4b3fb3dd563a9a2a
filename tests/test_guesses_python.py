"""Natural first guesses in Python: each works, or says exactly what to do.

The page docs/guide/guesses.md lists them; a guess is the code of its first column.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_runs import SETTINGS

import umpteen
from umpteen.errors import ConfigError, DataError, RunError

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "guesses.md"
SMALL = [*SETTINGS, "train.epochs=1"]

WORKS = {
    "umpteen.train(df)": lambda g: g.train(g.df),
    "umpteen.train(df['text'], df['labels'])": lambda g: g.train(g.df["text"], g.df["labels"]),
    "umpteen.train(df, label_column='tags')": lambda g: g.train(
        g.df.rename(columns={"labels": "tags"}), label_column="tags"
    ),
    "umpteen.train('data.csv')": lambda g: g.train(str(g.csv)),
    "umpteen.train(polars_df)": lambda g: g.train(pl.from_pandas(g.df)),
    "umpteen.train(texts, [['a', 'b'], ['c']])": lambda g: g.train(g.texts, g.lists),
    "umpteen.train(texts, Y, classes=mlb.classes_)": lambda g: g.train(
        g.texts, g.matrix, classes=g.classes
    ),
    "umpteen.train(texts, labels).save('run')": lambda g: g.train(g.texts, g.lists).save(
        g.folder / "run"
    ),
    "umpteen.evaluate(model, 'data.csv')": lambda g: umpteen.evaluate(g.model, str(g.csv)),
    "umpteen.evaluate(model, df)": lambda g: umpteen.evaluate(g.model, g.df),
    "umpteen.evaluate(model, df)['combined']['P@1']": lambda g: umpteen.evaluate(g.model, g.df)[
        "combined"
    ]["P@1"],
    "umpteen.evaluate('run', df)": lambda g: umpteen.evaluate(g.model.folder, g.df),
    "umpteen.evaluate(model, texts, labels)": lambda g: umpteen.evaluate(g.model, g.texts, g.lists),
    "model.predict('some text')": lambda g: g.model.predict("some text"),
    "model.predict(df['text'])": lambda g: g.model.predict(g.df["text"]),
    "for prediction in model.predict(texts): ...": lambda g: [
        label.id for prediction in g.model.predict(g.texts) for label in prediction
    ],
    "model.predict(texts)[0].ids": lambda g: g.model.predict(g.texts)[0].ids,
    "model.predict(texts).to_frame()": lambda g: g.model.predict(g.texts).to_frame(),
    "model.predict(text, threshold=0.3, explain=True)": lambda g: g.full.predict(
        g.texts[0], threshold=0.3, explain=True
    ),
    "model.add_examples('some text', ['L01'])": lambda g: g.model.add_examples(
        "some text", ["L01"]
    ),
    "pickle.loads(pickle.dumps(model))": lambda g: __import__("pickle").loads(
        __import__("pickle").dumps(g.model)
    ),
}
REFUSED = {
    "model.predict(df)": (
        lambda g: g.model.predict(g.df), DataError, r"one column of it, such as table\['text'\]",
    ),
    "model.predict([['a', 'b']])": (
        lambda g: g.model.predict([["a", "b"]]), DataError, r"texts\[0\] is a list; pass strings",
    ),
    "model.predict(None)": (lambda g: g.model.predict(None), DataError, "texts is None"),
    "model.predict(text, k='5')": (
        lambda g: g.model.predict("a", k="5"), ConfigError, "k is '5'; give a whole number",
    ),
    "umpteen.train(texts)": (
        lambda g: g.train(g.texts), DataError, "texts are given without labels",
    ),
    "umpteen.train(texts, Y)": (
        lambda g: g.train(g.texts, g.matrix), DataError, "as classes=",
    ),
    "umpteen.train(df, labels)": (
        lambda g: g.train(g.df, g.lists), DataError, "it has its own; pass texts and labels",
    ),
    "umpteen.Predictor.load('data.csv')": (
        lambda g: umpteen.Predictor.load(g.csv), RunError, "is not a run folder",
    ),
}  # fmt: skip


class Given:
    """What the guesses use."""

    def __init__(self, folder, data, full):
        split = data["train"]
        self.folder = folder
        self.texts = split.texts()
        self.classes = np.array(data.labels.ids)
        self.matrix = split.targets.toarray().astype(int)
        self.lists = [self.classes[line.indices].tolist() for line in split.targets]
        cells = [";".join(row) for row in self.lists]
        self.df = pd.DataFrame({"text": self.texts, "labels": cells})
        self.csv = folder / "data.csv"
        self.df.to_csv(self.csv, index=False)
        self.full = full
        self.model = self.train(self.texts, self.lists)

    def train(self, *given, **options):
        return umpteen.train(*given, overrides=SMALL, device="cpu", **options)


@pytest.fixture(scope="module")
def given(tiny_data, tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guesses")
    return Given(folder, tiny_data, umpteen.Predictor.load(tiny_run, device="cpu"))


@pytest.mark.parametrize("guess", WORKS)
def test_a_guess_works(guess, given):
    found = WORKS[guess](given)
    if isinstance(found, umpteen.Predictor):
        assert sorted(found.labels.ids) == sorted(given.classes)
        assert len(found.predict(given.texts[:2], 3).ids[0]) == 3
    elif isinstance(found, float):
        assert 0 <= found <= 100
    elif guess.startswith("umpteen.evaluate"):
        assert found["combined"].n == 60
        assert found.unknown_labels == 0
    elif guess.endswith("save('run')"):
        assert umpteen.Predictor.load(given.folder / "run").labels.ids
    elif isinstance(found, umpteen.TopK):
        assert len(found) in (1, 60)
    else:
        assert found is not None
        assert found == 1 if guess.startswith("model.add") else len(found) > 0


@pytest.mark.parametrize("guess", REFUSED)
def test_a_guess_is_refused_with_what_to_do(guess, given):
    call, error, sentence = REFUSED[guess]
    with pytest.raises(error, match=sentence):
        call(given)


def test_the_page_lists_these_guesses():
    section = PAGE.read_text("utf-8").partition("## Python")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    assert sorted(listed) == sorted([*WORKS, *REFUSED])
