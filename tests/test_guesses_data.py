"""Natural first guesses about data files: each works, or says exactly what to do.

The page docs/guide/guesses.md lists them; a guess is the code of its first column.
"""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from umpteen import Dataset
from umpteen.cli import main
from umpteen.errors import DataError

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "guesses.md"
TEXTS = ["red shoes", "wool coat", "rain jacket", "tennis racket", "hiking shoes", "sun hat"] * 2
ROWS = ["a,b", "c", "c,d", "b", "a,d,b", "c,b"] * 2
PLACES = ["Paris, France", "Lyon, France", "Rome, Italy", "Bonn, Germany"] * 3


def table(header, *columns, mark=","):
    rows = zip(*columns, strict=True)
    return "\n".join([header, *(mark.join(f'"{cell}"' for cell in row) for row in rows)]) + "\n"


FILES = {
    "commas.csv": table("text,tags", TEXTS, ROWS),
    "bars.csv": table("text,labels", TEXTS, [row.replace(",", " | ") for row in ROWS]),
    "lists.csv": table("text,labels", TEXTS, [str(row.split(",")) for row in ROWS]),
    "spreadsheet.csv": table("text;labels", TEXTS, ROWS, mark=";"),
    "classes.csv": table("Text,Label", TEXTS, ["x", "y", "z"] * 4),
    "places.csv": table("text,labels", TEXTS, PLACES),
    "articles.csv": table("title,body,Keywords", TEXTS, ["A story."] * 12, ROWS),
    "packages.csv": table("name,blurb,section", ["p"] * 12, TEXTS, ["x", "y", "z"] * 4),
    "plain.csv": table('"first text here","x"', TEXTS, ["x", "y", "z"] * 4),
    "flags.csv": table("text,red,blue", TEXTS, [1, 0, 1] * 4, [0, 1, 1] * 4),
    "numbered.csv": table("text,label1,label2", TEXTS, ["a", "b", "c"] * 4, ["b", "", "a"] * 4),
    "wrapped.json": json.dumps({"data": [{"text": text, "tags": ["a", "b"]} for text in TEXTS]}),
    "twice.csv": table("text,labels", TEXTS, ["a;b;a", "b"] * 6),
    "unlabelled.csv": table("text,labels", TEXTS, ["a;b", ""] * 6),
    "rows.json": json.dumps([{"text": text, "labels": ["a", "b"]} for text in TEXTS]),
    "rows.jsonl": "".join(json.dumps({"text": text, "label": "a"}) + "\n" for text in TEXTS),
    "cooking.txt": "".join(f"__label__a __label__b {text}\n" for text in TEXTS),
    "frame.json": json.dumps(
        {"text": dict(enumerate(TEXTS)), "tags": dict(enumerate(map(str.upper, ROWS)))}
    ),
    "book.xlsx": "PK\x03\x04",
    "vectors.svm": "1 3:0.5 10:1\n-1 2:1\n",
    "folder/products.csv": table("text,tags", TEXTS, ROWS),
}
FOUR = "4 labels"
"""Prints when the rows above are read right: the labels a, b, c and d."""

WORKS = {
    "umpteen data check commas.csv": (FOUR, "separated by commas", "'red shoes' -> a | b"),
    "umpteen data check bars.csv": (FOUR, "The data can be used"),
    "umpteen data check lists.csv": (FOUR, "The data can be used"),
    "umpteen data check spreadsheet.csv": (FOUR, "fields separated by ';'", "by commas"),
    "umpteen data check flags.csv": ("2 labels", "labels from 2 columns of 0 and 1 (red, blue)"),
    "umpteen data check numbered.csv": ("3 labels", "labels from 2 columns, one in a cell"),
    "umpteen data check wrapped.json": ("2 labels", "The data can be used"),
    "umpteen data check classes.csv": ("3 labels", "The data can be used"),
    "umpteen data check places.csv": (FOUR, "each cell is one label", "-> Paris, France"),
    "umpteen data check articles.csv": (FOUR, "title from 'title', content from 'body'"),
    "umpteen data check articles.csv --text-column title --text-column body": (
        FOUR, "text from 'title' and 'body'", "'red shoes A story.'",
    ),
    "umpteen data check packages.csv --text-column blurb --label-column section": ("3 labels",),
    "umpteen data check plain.csv --no-header": (
        "3 labels", "text from '1', labels from '2'", "'first text here' -> x",
    ),
    "umpteen data check twice.csv": ("6 labels twice in a row, kept once (first in line 2)",),
    "umpteen data check unlabelled.csv": ("rows 2, 4, 6, 8, 10 and 1 more: no labels",),
    "umpteen data check rows.json": ("rows: jsonl, 2 labels",),
    "umpteen data check rows.jsonl": ("rows: jsonl, 1 label\n",),
    "umpteen data check frame.json": (FOUR, "'red shoes' -> A | B"),
    "umpteen data check cooking.txt": ("cooking: fasttext, 2 labels",),
    "umpteen data check imdb": ("imdb: hugging-face, 2 labels", "-> neg"),
    "umpteen data check reviews.parquet": ("reviews: parquet, 2 labels", "-> neg"),
    "cat commas.csv | umpteen data check -": (FOUR, "separated by commas"),
    "umpteen data split commas.csv out --test 0.2": ("train ", "test ", "Wrote out"),
    "umpteen data convert lists.csv out --to jsonl": ("Wrote out",),
}  # fmt: skip
REFUSED = {
    "umpteen data check packages.csv": (
        "packages.csv: found the columns name, blurb, section; none has a name that is known for "
        "labels. Name it with --label-column"
    ),
    "umpteen data check plain.csv": "or use --no-header if the first line is a row",
    "umpteen data check book.xlsx": "save the sheet as CSV",
    "umpteen data check vectors.svm": "umpteen reads texts",
    "umpteen data check folder": "Name the file itself: folder/products.csv",
    "umpteen data split commas.csv folder": "folder exists already",
}
PYTHON = {
    'Dataset.from_pandas(pandas.read_csv("commas.csv"))': None,
    'Dataset.from_arrow(polars.read_csv("commas.csv"))': None,
    "Dataset.from_lists(texts, indicator)": "as classes=",
    'Dataset.from_lists(texts, indicator, classes=["a", "b"])': None,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_reviews():
    hub = pytest.importorskip("datasets")
    names = hub.ClassLabel(names=["neg", "pos"])
    features = hub.Features({"review": hub.Value("string"), "label": names})
    rows = {"review": TEXTS, "label": [0, 1] * 6}
    data = hub.Dataset.from_dict(rows, features=features)
    data.save_to_disk("imdb")
    data.to_parquet("reviews.parquet")


def run(guess):
    *before, command = guess.split(" | ")
    given = Path(before[0].removeprefix("cat ")).read_bytes() if before else None
    return CliRunner().invoke(main, shlex.split(command)[1:], input=given)


@pytest.mark.parametrize("guess", WORKS)
def test_a_guess_works(guess, folder):
    if "imdb" in guess or "reviews" in guess:
        write_reviews()
    result = run(guess)
    assert result.exit_code == 0, result.stderr
    for words in WORKS[guess]:
        assert words in result.output


@pytest.mark.parametrize("guess", REFUSED)
def test_a_guess_is_refused_with_what_to_do(guess, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = run(guess)
    assert (result.exit_code, result.stdout) == (1, "")
    assert REFUSED[guess] in result.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("guess", PYTHON)
def test_a_guess_in_python(guess, folder):
    names = {
        "Dataset": Dataset,
        "texts": TEXTS[:3],
        "indicator": np.array([[1, 0], [0, 1], [1, 1]]),
    }
    for library in ("pandas", "polars"):
        if f"{library}." in guess:
            names[library] = pytest.importorskip(library)
    if PYTHON[guess] is not None:
        with pytest.raises(DataError, match=PYTHON[guess]):
            eval(guess, names)
        return
    data = eval(guess, names)
    assert sorted(data.labels.ids) == (["a", "b"] if "indicator" in guess else list("abcd"))


def test_the_page_lists_every_guess():
    listed = re.findall(r"^\| `((?:[^`\\]|\\.)+)` \|", PAGE.read_text("utf-8"), re.M)
    found = {each.replace("\\|", "|") for each in listed}
    assert not {*WORKS, *REFUSED, *PYTHON} - found
