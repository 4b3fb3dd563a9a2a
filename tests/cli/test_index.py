"""``umpteen index``: what is built is measured, used, and taken away again."""

import json
import shutil

import numpy as np
import pytest
from hard_disks import no_room

import umpteen
from umpteen.errors import LabelMismatch, RunError
from umpteen.locks import exclusive_folder


def measured(result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_exact_search_finds_everything_and_leaves_nothing(umpteen_command, run):
    rows = measured(umpteen_command("index", run, "--json"))
    assert [row["head"] for row in rows] == ["dual", "classifier", "combined"]
    assert all(row["recall"] == pytest.approx(100) for row in rows)
    assert not (run / "index").exists()


def test_the_table_names_the_recall(umpteen_command, run):
    result = umpteen_command("index", run, "-k", "5")
    assert result.exit_code == 0, result.stderr
    assert "recall@5" in result.stdout.splitlines()[0]
    assert result.stdout.count("100.00") >= 3


def test_faiss_is_built_used_and_taken_away_again(umpteen_command, run):
    pytest.importorskip("faiss")
    before = umpteen.Predictor.load(run).predict("red apple", 5)
    rows = measured(umpteen_command("index", run, "--kind", "faiss", "--factory", "Flat", "--json"))
    assert all(row["recall"] == pytest.approx(100) for row in rows)
    model = umpteen.Predictor.load(run)
    assert type(model.label_vectors.index("dual")).__name__ == "FaissIndex"
    assert model.predict("red apple", 5).ids == before.ids
    answered = umpteen_command("predict", run, "-k", "5", stdin="red apple\n")
    labels = json.loads(answered.stdout)["labels"]
    assert [label["id"] for label in labels] == before.ids[0]
    measured(umpteen_command("index", run, "--kind", "exact", "--json"))
    assert type(umpteen.Predictor.load(run).label_vectors.index("dual")).__name__ == "ExactIndex"
    assert not (run / "index").exists()


def test_vectors_beyond_the_memory_get_inverted_lists(umpteen_command, fails, run):
    pytest.importorskip("faiss")
    before = umpteen.Predictor.load(run).predict("red apple", 5, head="combined")
    assert "64 MiB" in fails(umpteen_command("index", run, "--max-memory", "10"))
    assert not (run / ".index-build").exists()
    rows = measured(umpteen_command("index", run, "--kind", "ivfpq", "--json"))
    assert [row["recall"] for row in rows] == [pytest.approx(100)] * 3
    model = umpteen.Predictor.load(run)
    assert type(model.label_vectors.index("combined")).__name__ == "IvfPqIndex"
    found = model.predict("red apple", 5, head="combined")
    assert found.ids == before.ids
    np.testing.assert_allclose(found.scores, before.scores, rtol=1e-5)
    assert not list(run.rglob("index/**/vectors.npy"))  # those of the model are used
    model.retire_labels([found.ids[0][0]])
    assert model.predict("red apple", 3, head="combined").ids[0] == before.ids[0][1:4]


def test_an_evaluation_names_the_search_it_was_made_with(umpteen_command, run, tiny_data_folder):
    pytest.importorskip("faiss")
    assert "; search: exact;" in umpteen_command("evaluate", run, tiny_data_folder).stderr
    flags = ["--kind", "faiss", "--factory", "HNSW8", "--head", "classifier", "--json"]
    measured(umpteen_command("index", run, *flags))
    assert "; search: exact, HNSW8;" in umpteen_command("evaluate", run, tiny_data_folder).stderr


def test_one_head_alone_can_be_indexed(umpteen_command, run):
    pytest.importorskip("faiss")
    flags = ["--kind", "faiss", "--factory", "Flat", "--head", "classifier", "--json"]
    assert [row["head"] for row in measured(umpteen_command("index", run, *flags))] == [
        "classifier"
    ]
    model = umpteen.Predictor.load(run)
    assert type(model.label_vectors.index("classifier")).__name__ == "FaissIndex"
    assert type(model.label_vectors.index("dual")).__name__ == "ExactIndex"


def test_an_index_that_cannot_be_built_leaves_the_old_one(umpteen_command, fails, run):
    pytest.importorskip("faiss")
    flags = ["--kind", "faiss", "--factory"]
    measured(umpteen_command("index", run, *flags, "Flat", "--json"))
    fails(umpteen_command("index", run, *flags, "NoSuchThing99"))
    assert type(umpteen.Predictor.load(run).label_vectors.index("dual")).__name__ == "FaissIndex"
    assert sorted(place.name for place in (run / "index").iterdir()) == [
        "classifier",
        "combined",
        "dual",
    ]


def test_an_index_of_other_vectors_is_refused_until_it_is_built_again(umpteen_command, run):
    faiss = pytest.importorskip("umpteen.index.faiss_index")
    pytest.importorskip("faiss")
    flags = ["--kind", "faiss", "--factory", "Flat", "--head", "dual", "--json"]
    measured(umpteen_command("index", run, *flags))
    vectors = umpteen.Predictor.load(run).label_vectors.numpy("dual")
    place = run / "index" / "dual"
    about = json.loads((place / "about.json").read_text())
    (place / "about.json").write_text(json.dumps({**about, "vectors": "0" * 64}))
    with pytest.raises(LabelMismatch, match="built from other label vectors.*umpteen index"):
        umpteen.Predictor.load(run)
    del about["vectors"]
    (place / "about.json").write_text(json.dumps(about))
    umpteen.Predictor.load(run)
    faiss.FaissIndex.build(vectors[:-1], factory="Flat").save(place / "index")
    with pytest.raises(LabelMismatch, match="built from other label vectors.*umpteen index"):
        umpteen.Predictor.load(run)
    (place / "about.json").unlink()
    with pytest.raises(RunError, match=r"about\.json is missing; build it again with: umpteen"):
        umpteen.Predictor.load(run)
    measured(umpteen_command("index", run, *flags))
    umpteen.Predictor.load(run)


def test_what_a_killed_build_left_is_removed_by_the_next_one(umpteen_command, run):
    pytest.importorskip("faiss")
    (run / ".index-build" / "umpteen-index-x").mkdir(parents=True)
    (run / ".index-build" / "umpteen-index-x" / "labels.faiss").write_text("half")
    (run / ".index.0123abcd.tmp").mkdir()
    (run / ".models.json.0123abcd.tmp").write_text("of a training")
    measured(umpteen_command("index", run, "--kind", "ivfpq", "--json"))
    hidden = [place.name for place in run.iterdir() if place.name.startswith(".")]
    assert hidden == [".models.json.0123abcd.tmp"]


def test_two_builds_of_a_run_do_not_meet(umpteen_command, fails, run):
    with exclusive_folder(run / ".index-build", busy=RunError("here")):
        assert "another process builds an index" in fails(umpteen_command("index", run))
    measured(umpteen_command("index", run, "--json"))


@pytest.mark.parametrize("kind", ["faiss", "ivfpq"])
def test_a_full_disk_is_a_sentence_and_leaves_the_old_index(umpteen_command, fails, run, kind):
    pytest.importorskip("faiss")
    measured(umpteen_command("index", run, "--kind", "faiss", "--factory", "Flat", "--json"))
    with no_room(500):
        said = fails(umpteen_command("index", run, "--kind", kind))
    assert "could not be written" in said
    assert "make room, then build the index again" in said
    assert type(umpteen.Predictor.load(run).label_vectors.index("dual")).__name__ == "FaissIndex"
    assert not [place for place in run.iterdir() if place.name.startswith(".index")]


def test_more_labels_than_there_are_can_be_asked_for(umpteen_command, run):
    result = umpteen_command("index", run, "-k", 10**11)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("100.00") >= 3


def test_errors_are_sentences(umpteen_command, fails, run, tmp_path):
    assert "is not a run folder" in fails(umpteen_command("index", tmp_path / "nowhere"))
    assert "Did you mean 'exact'?" in fails(umpteen_command("index", run, "--kind", "exakt"))
    assert "--factory" in fails(umpteen_command("index", run, "--factory", "Flat"))
    shutil.copy(run / "models.json", run / "examples.jsonl")
    assert "examples.jsonl" in fails(umpteen_command("index", run))


def test_wrong_usage_exits_with_2(umpteen_command, fails, run):
    fails(umpteen_command("index", run, "--head", "both"), code=2)
    fails(umpteen_command("index", run, "-k", "0"), code=2)
    said = fails(umpteen_command("index", run, "--max-memory", "much"), code=2)
    assert "'much' is no size" in said


@pytest.mark.parametrize("size", ["1e400", "1.2.3", ".", "0", "0.1b", "-1GiB", "nan", "9" * 400])
def test_a_size_that_is_none_is_wrong_usage(size, umpteen_command, fails, run):
    said = fails(umpteen_command("index", run, "--max-memory", size), code=2)
    assert "write" in said
    assert "2GiB" in said


def test_memory_is_an_option_of_one_kind(umpteen_command, fails, run):
    for kind in ("faiss", "exact"):
        said = fails(umpteen_command("index", run, "--kind", kind, "--max-memory", "1GiB"))
        assert "--max-memory is for --kind ivfpq" in said
    measured(umpteen_command("index", run, "--max-memory", "1GiB", "--json"))
