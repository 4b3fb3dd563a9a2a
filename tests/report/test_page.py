"""The whole page of runs that were really trained: its numbers, its safety, its special cases."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, RunError
from umpteen.evaluation import evaluate
from umpteen.predictor import Predictor
from umpteen.report import write_report
from umpteen.report.writing import style_sheet
from umpteen.training.reporters import Silent
from umpteen.training.run import train

SMALL = ["encoder.table=random", "encoder.dim=16", "model.dim=16", "batches.size=16"]
HOSTILE = '<script>alert(1)</script><img src="http://example.org/x">'


class Page(HTMLParser):
    """Text of every section, cells of every table row, and all attributes."""

    def __init__(self, path):
        super().__init__()
        self.raw = path.read_text("utf-8")
        self.tags, self.attributes, self.sections, self.rows = [], [], {"": ""}, {}
        self._section, self._row, self._cell = "", None, False
        self.feed(self.raw)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "section":
            self._section = dict(attrs)["id"]
            self.sections[self._section] = ""
        if tag == "tr":
            self._row = []
            self.rows.setdefault(self._section, []).append(self._row)
        if tag in ("td", "th"):
            self._row.append("")
            self._cell = True

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = ""
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        self.sections[self._section] += data
        if self._cell:
            self._row[-1] += data


class Stop(Silent):
    """Ends training in a given epoch, as a crash would."""

    def __init__(self, epoch):
        self.epoch = epoch

    def step(self, info, epoch):
        if info.epoch == self.epoch:
            raise RuntimeError("pulled the plug")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


def make(place, name, data, *overrides, **options):
    train(
        data,
        out=place / name,
        overrides=[*SMALL, *overrides],
        cache=place / "cache",
        device="cpu",
        **options,
    )
    return place / name


@pytest.fixture(scope="module")
def run(place, tiny_data):
    return make(place, "whole", tiny_data, "validation.share=0.25", "train.epochs=3",
                "ensemble.enabled=off")  # fmt: skip


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


def numbers(page, section):
    return {row[0]: row[1:] for row in page.rows[section]}


def test_numbers_on_a_split_are_those_of_evaluate(run, tiny_data, tmp_path):
    page = Page(write_report(run, data=tiny_data, out=tmp_path / "page.html"))
    result = evaluate(Predictor.load(run, device="cpu"), tiny_data)
    table = numbers(page, "heads")
    assert table.pop("metric") == ["Dual encoder", "Classifier", "Combined"]
    assert list(table) == list(result["dual"].values)
    for metric, cells in table.items():
        assert cells == [f"{report.values[metric]:.2f}" for report in result.heads.values()]
    bins = numbers(page, "bins")
    for place, name in enumerate(["head", "2", "3", "4", "tail"]):
        expected = [f"{report.bins[place]:.2f}" for report in result.heads.values()]
        assert bins[name][2:] == expected
    assert "on all 20 test texts of tiny" in page.sections["heads"]
    assert "a = 0.55, b = 1.5" in page.sections["facts"]


def test_numbers_on_examples_are_those_of_the_validation_that_chose_the_model(run):
    page = Page(write_report(run))
    document = json.loads((run / "metrics.json").read_text())
    epoch = int(json.loads((run / "models.json").read_text())["best"][-4:])
    entry = next(entry for entry in document["validation"] if entry["epoch"] == epoch)
    table = numbers(page, "heads")
    shared = [metric for metric in entry["heads"]["dual"] if not metric.startswith("PS")]
    assert "R@100" in shared
    for metric in shared:
        assert table[metric] == [f"{values[metric]:.2f}" for values in entry["heads"].values()]
    assert "on 15 validation examples, not on test" in page.sections["heads"]
    assert "PSP@5" not in table  # a run does not know the constants
    assert "The heads may rank otherwise on test" in page.sections["heads"]


def test_every_validation_is_in_the_curves(run):
    page = Page(write_report(run))
    document = json.loads((run / "metrics.json").read_text())
    rows = page.rows["curves"]
    assert len(rows) == 1 + 3 * len(document["validation"])
    last = document["validation"][-1]["heads"]["combined"]
    assert rows[-1] == ["3", "Combined", *(f"{value:.2f}" for value in last.values())]
    assert f"Validation {document['select']} in percent by epoch" in page.sections["curves"]


def test_label_tables_count_what_predictions_show(run, tiny_data, tmp_path):
    page = Page(write_report(run, data=tiny_data, out=tmp_path / "page.html"))
    part = tiny_data["test"]
    model = Predictor.load(run, device="cpu")
    top = model.predict(part.texts(), 5, head="combined", exclude=part.filters)
    truth = part.filtered_targets()
    rows = page.rows["labels"]
    start = next(i for i, row in enumerate(rows) if row[-1] == "missed")
    assert rows[start + 1 :]
    for name, in_training, true_for, found, missed in (
        r for r in rows[start + 1 :] if r[0] != "label"
    ):
        label = tiny_data.labels.row(name.split()[-1])
        having = truth[:, [label]].nonzero()[0]
        hits = sum(label in top.rows[query].tolist() for query in having)
        counted = [tiny_data.label_counts[label], len(having), hits, len(having) - hits]
        assert [in_training, true_for, found, missed] == list(map(str, counted))


def test_filtered_labels_of_examples_count_neither_as_right_nor_as_wrong(copy):
    file = copy / "examples.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    model = Predictor.load(copy, device="cpu")
    first = [ids[0] for ids in model.predict([line["text"] for line in lines], 2).ids]
    for line, label in zip(lines, first, strict=True):
        assert "filtered" in line  # what training writes
        line["filtered"] = [label]
        line["labels"] = [own for own in line["labels"] if own != label]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    second = [ids[1] for ids in model.predict([line["text"] for line in lines], 2).ids]
    right = [label in line["labels"] for label, line in zip(second, lines, strict=True)]
    assert 0 < sum(right) < len(right)
    page = Page(write_report(copy))
    assert numbers(page, "heads")["P@1"][-1] == f"{100 * np.mean(right):.2f}"
    assert "Filter pairs taken out15" in page.sections["facts"]


def test_queries_the_model_was_trained_on_are_named_as_such(run, tiny_data, tmp_path):
    page = Page(write_report(run, data=tiny_data, split="train", out=tmp_path / "page.html"))
    assert "The model has seen them" in page.sections["heads"]
    assert "Filter pairs taken out2" in page.sections["facts"]


def test_page_needs_nothing_from_outside_and_runs_no_script(run):
    page = Page(write_report(run))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert name not in ("src", "srcset", "style", "xlink:href")
        assert not name.startswith("on")
        if name == "href":
            assert re.fullmatch(r"#[a-z]+", value), (tag, value)
            assert ("section", "id", value[1:]) in page.attributes
    assert "://" not in page.raw
    assert "@import" not in style_sheet()
    assert "url(" not in style_sheet()
    policy = next(v for _, n, v in page.attributes if n == "content" and "default-src" in v)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_policy_allows_the_very_style_sheet_of_the_page(run):
    import base64
    import hashlib

    page = Page(write_report(run))
    style = re.search(r"<style>(.*?)</style>", page.raw, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"sha256-{digest}" in page.raw.replace("&#x27;", "'")


def test_page_is_the_same_each_time(run):
    assert write_report(run).read_bytes() == write_report(run).read_bytes()


def test_every_user_text_is_escaped(place, tiny_data):
    titles = [f"{HOSTILE} {title}" for title in tiny_data.labels.titles]
    ids = [f'"{HOSTILE} {label}' for label in tiny_data.labels.ids]
    queries = tiny_data["train"]
    texts = [f"{HOSTILE} {text} \x00" for text in queries.titles]
    data = replace(
        tiny_data,
        labels=LabelSet(ids, titles),
        splits={"train": replace(queries, titles=texts)},
        name=HOSTILE,
    )
    run = make(place, "hostile", data, "validation.share=0.25", "train.epochs=1")
    page = Page(write_report(run))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.raw.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert HOSTILE in page.sections["examples"]
    assert HOSTILE in page.sections["labels"]
    assert HOSTILE in page.sections["facts"]
    assert "\x00" not in page.raw


def test_a_run_of_one_head_has_no_comparisons(place, tiny_data):
    heads = ['model.heads=["dual"]', "loss.dual_share=1.0", "ensemble.enabled=off"]
    run = make(place, "one", tiny_data, *heads, "validation.share=0.25", "train.epochs=2")
    page = Page(write_report(run))
    assert numbers(page, "heads")["metric"] == ["Dual encoder"]
    assert "Test is scored by umpteen report" in page.sections["heads"]
    assert "Most improved" not in page.sections["labels"]
    assert "Most often missed" in page.sections["labels"]
    assert "Where the heads differ" not in page.sections["examples"]


def test_a_run_without_validation_says_that_its_examples_were_trained_on(place, tiny_data):
    run = make(place, "blind", tiny_data, "validation.share=0", "train.epochs=2")
    page = Page(write_report(run))
    assert "no validation curves" in page.sections["curves"]
    assert "60 training examples, not on test" in page.sections["heads"]
    assert "the model has seen them" in page.sections["heads"]
    assert "Finished: 2 epochs." in page.sections[""]


def test_an_unfinished_run_says_so(place, tiny_data):
    with pytest.raises(RuntimeError, match="plug"):
        make(
            place, "cut", tiny_data, "validation.share=0.25", "train.epochs=5", reporters=[Stop(3)]
        )
    page = Page(write_report(place / "cut"))
    assert "This run has not finished" in page.sections[""]
    assert re.search(r"reached epoch [23] of 5", page.sections[""])
    assert "P@1" in numbers(page, "heads")


def test_a_run_without_a_model_shows_what_there_is(place, tiny_data):
    with pytest.raises(RuntimeError, match="plug"):
        make(
            place, "none", tiny_data, "validation.share=0.25", "train.epochs=5", reporters=[Stop(1)]
        )
    page = Page(write_report(place / "none"))
    assert "has saved no trained model yet" in page.sections["heads"]
    assert "examples" not in page.sections
    assert "40" in page.sections["facts"]


def test_a_missing_step_log_leaves_only_its_curve_out(copy):
    (copy / "steps.jsonl").unlink()
    page = Page(write_report(copy))
    assert "the run has no steps.jsonl" in page.sections["curves"]
    assert "P@5" in numbers(page, "heads")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda run: (run / "examples.jsonl").unlink(),
            r"examples.jsonl is missing; name the data",
        ),
        (lambda run: (run / "examples.jsonl").write_text(""), r"examples.jsonl is empty"),
        (
            lambda run: (run / "examples.jsonl").write_text('{"text": "a", "labels": []}\n{"text"'),
            r"examples.jsonl, line 2: expected",
        ),
        (lambda run: (run / "labels.jsonl").unlink(), r"labels.jsonl is missing"),
        (lambda run: (run / "models.json").unlink(), r"models.json is missing"),
        (
            lambda run: (run / "metrics.json").write_text("{"),
            r"metrics.json cannot be read as JSON",
        ),
    ],
)
def test_missing_and_damaged_files_are_named_and_no_page_is_written(copy, damage, sentence):
    damage(copy)
    (copy / "report.html").unlink(missing_ok=True)
    with pytest.raises(RunError, match=sentence):
        write_report(copy)
    assert not (copy / "report.html").exists()


def test_examples_of_labels_the_run_no_longer_has_are_counted(copy):
    lines = (copy / "examples.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["labels"].append("gone")
    (copy / "examples.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]))
    page = Page(write_report(copy))
    assert "1 true labels of the examples are no longer labels" in page.sections["heads"]


def test_data_of_other_labels_and_a_missing_split_are_told(run, tiny_data):
    other = replace(tiny_data, labels=LabelSet([f"x{i}" for i in range(40)], ["t"] * 40))
    with pytest.raises(DataError, match="no label of the data is in the run"):
        write_report(run, data=other)
    with pytest.raises(DataError, match="no 'validation' split"):
        write_report(run, data=tiny_data, split="validation")


def test_data_with_labels_in_another_order_and_new_ones_is_matched_by_id(run, tiny_data, tmp_path):
    own = Page(write_report(run, data=tiny_data, out=tmp_path / "own.html"))
    n = len(tiny_data.labels)
    order = np.random.default_rng(3).permutation(n)
    ids = ["new", *(tiny_data.labels.ids[row] for row in order)]
    texts = ["a label of the data alone", *(tiny_data.labels.texts[row] for row in order)]
    part = tiny_data["test"]
    new = sp.csr_matrix(np.ones((len(part), 1), np.float32))
    targets = sp.csr_matrix(sp.hstack([new, part.targets[:, order]]))
    filters = part.filters.copy()
    filters[:, 1] = 1 + np.argsort(order)[filters[:, 1]]
    test = replace(part, targets=targets, filters=filters)
    other = replace(tiny_data, labels=LabelSet(ids, texts), splits={"test": test})
    page = Page(write_report(run, data=other, out=tmp_path / "other.html"))
    for metric in ("P@1", "P@5"):  # the new label is always missed, so no hit comes or goes
        assert numbers(page, "heads")[metric] == numbers(own, "heads")[metric]
    rows = [row for row in page.rows["labels"] if row[0].startswith("a label of the data alone")]
    assert [str(len(part)), "0", str(len(part))] in [row[2:] for row in rows]
    known = {row[0]: row for row in own.rows["labels"] if row[0] != "label"}
    both = [row for row in page.rows["labels"] if len(row) == 5 and row[0] in known]
    assert both
    assert all(row in own.rows["labels"] for row in both)


def test_a_failed_report_leaves_the_old_page_alone(copy, tiny_data):
    old = write_report(copy).read_bytes()
    with pytest.raises(DataError):
        write_report(copy, data=tiny_data, split="validation")
    assert (copy / "report.html").read_bytes() == old
    assert not list(copy.glob(".report*"))


def test_a_folder_that_is_not_there_cannot_take_the_page(run, tmp_path):
    with pytest.raises(RunError, match="is no folder"):
        write_report(run, out=tmp_path / "nowhere" / "page.html")


def test_queries_without_true_labels_are_counted_and_not_shown(run, tiny_data, tmp_path):
    part = tiny_data["test"]
    targets = part.targets.copy()
    targets.data[targets.indptr[4] : targets.indptr[5]] = 0
    targets.eliminate_zeros()
    splits = dict(tiny_data.splits) | {"test": replace(part, targets=targets)}
    data = replace(tiny_data, splits=splits)
    page = Page(write_report(run, data=data, out=tmp_path / "page.html"))
    without = int(np.count_nonzero(np.diff(data["test"].filtered_targets().indptr) == 0))
    assert f"{without} texts have no true label" in page.sections["heads"]
    assert part.titles[4] not in page.sections["examples"]


def test_the_page_is_about_the_ensemble_where_it_is_in_use(tiny_run, tiny_data, tmp_path):
    page = Page(write_report(tiny_run, data=tiny_data, out=tmp_path / "page.html", device="cpu"))
    assert "Ensemble, the one in use, in percent" in page.sections[""]
    assert "The ensemble, which predictions come from, is fitted after" in page.sections["curves"]
    labels = page.sections["labels"]
    assert "where the ensemble gains most against the combined head alone" in labels
    assert "not found by the ensemble" in labels
    assert "Ensemble; predicted are labels with probability" in labels
    model = Predictor.load(tiny_run, device="cpu")
    label_id, text, *_, f1 = next(evaluate(model, tiny_data).per_label.rows())
    name = text if text == label_id else f"{text} {label_id}"
    first = next(row for row in page.rows["labels"] if row[0] == name)
    assert first[-1] == f"{f1:.2f}"
    assert "ensemble" in page.sections["facts"]


def test_examples_of_the_run_give_the_scores_of_labels_too(tiny_run, tmp_path):
    page = Page(write_report(tiny_run, out=tmp_path / "page.html", device="cpu"))
    assert "Ensemble; predicted are labels with probability" in page.sections["labels"]
