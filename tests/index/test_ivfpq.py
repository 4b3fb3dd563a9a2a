"""The IVF-PQ index: built in shards, opened without reading it, scored from mapped vectors."""

import numpy as np
import pytest
import torch

from umpteen.errors import ConfigError, RunError, UmpteenError
from umpteen.index import ivfpq_files
from umpteen.index.exact import ExactIndex
from umpteen.index.ivfpq import IvfPqIndex
from umpteen.index.mapped_rows import MappedRows
from umpteen.index.recall import recall

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(5)
    found = rng.standard_normal((40, 16))[rng.integers(40, size=3000)]
    found += 0.5 * rng.standard_normal(found.shape)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def mapped(vectors, tmp_path_factory):
    file = tmp_path_factory.mktemp("vectors") / "vectors.npy"
    np.save(file, np.hstack([vectors, -vectors]))
    return np.load(file, mmap_mode="c")[:, :16]


@pytest.fixture(scope="module")
def index(mapped):
    return IvfPqIndex.build(mapped, n_lists=32, nprobe=8)


def test_shards_give_the_same_index_as_one_build(vectors, monkeypatch, tmp_path):
    rows, shape = MappedRows(vectors), ivfpq_files.Shape.of(3000, 16, 16, 8)
    monkeypatch.setattr(ivfpq_files, "MIN_MEMORY", 0)
    put_aside = []
    inner = ivfpq_files._put_aside
    monkeypatch.setattr(
        ivfpq_files, "_put_aside", lambda *given: put_aside.append(given) or inner(*given)
    )
    files = [tmp_path / "one", tmp_path / "many"]
    for file, memory in zip(files, (1 << 30, 1 << 18), strict=True):
        ivfpq_files.build_file(file, rows, shape, max_memory=memory, seed=0)
    assert len(put_aside) == 1
    # The smaller limit trains on fewer vectors, so only the sizes agree with those of the other.
    about = {"n_labels": 3000, "dim": 16, "code_bytes": 8}
    one, many = (
        ivfpq_files.open_file(file, about | ivfpq_files.checks(file, 3000, 8)) for file in files
    )
    assert files[0].stat().st_size == files[1].stat().st_size
    for index in (one, many):
        index.nprobe = 16
        found = index.search(vectors[:50], 3000)[1]
        assert (np.sort(found, axis=1) == np.arange(3000)).all()


def test_scores_are_those_of_the_mapped_vectors(index, vectors):
    top = index.search(vectors[:20], 10)
    assert (top.rows[:, 0] == np.arange(20)).all()
    wanted = np.take_along_axis(vectors[:20] @ vectors.T, top.rows, 1)
    np.testing.assert_allclose(top.scores, wanted, atol=1e-6)
    assert recall(index, ExactIndex.build(vectors), vectors[:200], 10) > 0.95


def test_a_search_starts_no_threads_that_read_ahead(index):
    faiss = pytest.importorskip("faiss")
    assert faiss.downcast_InvertedLists(index.index.invlists).prefetch_nthread == 0


def test_coarser_codes_have_more_candidates(vectors):
    fine, coarse = (IvfPqIndex.build(vectors, n_lists=8, code_bytes=n) for n in (8, 4))
    assert (fine.candidates, coarse.candidates) == (128, 256)


def test_a_graph_finds_the_lists_too(vectors, monkeypatch):
    monkeypatch.setattr(ivfpq_files, "GRAPH_LISTS", 10)
    index = IvfPqIndex.build(vectors, n_lists=32, nprobe=8, code_bytes=4)
    assert recall(index, ExactIndex.build(vectors), vectors[:200], 10) > 0.95


def test_half_precision_and_tensors_are_read_as_they_are(vectors):
    half = IvfPqIndex.build(vectors.astype(np.float16), n_lists=8, code_bytes=2)
    assert half.search(vectors[:5], 1).rows[:, 0].tolist() == [0, 1, 2, 3, 4]
    rounded = IvfPqIndex.build(torch.from_numpy(vectors).bfloat16(), n_lists=8, code_bytes=2)
    assert rounded.search(vectors[:5], 1).rows[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5])
def test_a_filter_costs_no_recall(index, vectors, share, monkeypatch):
    monkeypatch.setattr("umpteen.index.ivfpq.SCANNED_ROWS", 50)
    allowed = np.random.default_rng(1).random(3000) < share
    allowed[7] = True
    top = index.search(vectors[:100], 10, allowed=allowed)
    exact = ExactIndex.build(vectors).search(vectors[:100], 10, allowed=allowed)
    assert (top.rows >= 0).sum() == (exact.rows >= 0).sum()
    assert np.mean([np.isin(a, b).mean() for a, b in zip(exact.rows, top.rows, strict=True)]) > 0.9


def test_vectors_may_be_left_to_the_one_who_loads(index, vectors, tmp_path):
    index.save(tmp_path / "index", with_vectors=False)
    loaded = IvfPqIndex.load(tmp_path / "index", vectors=vectors)
    assert np.array_equal(loaded.search(vectors[:9], 5).rows, index.search(vectors[:9], 5).rows)
    with pytest.raises(RunError, match="no vectors to score with"):
        IvfPqIndex.load(tmp_path / "index")
    with pytest.raises(RunError, match="built from other vectors"):
        IvfPqIndex.load(tmp_path / "index", vectors=vectors[::-1])


@pytest.mark.parametrize("at", [10, 5000, -3])
def test_a_damaged_file_does_not_reach_faiss(index, tmp_path, at):
    index.save(tmp_path / "index")
    file = tmp_path / "index" / "labels.faiss"
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.unlink()  # it may be a link to the file of the index that is open
    file.write_bytes(raw)
    with pytest.raises(RunError, match="damaged"):
        IvfPqIndex.load(tmp_path / "index")
    file.write_bytes(raw[:-1])
    with pytest.raises(RunError, match="damaged"):
        IvfPqIndex.load(tmp_path / "index")


def test_sizes_that_do_not_fit_are_named(vectors):
    with pytest.raises(ConfigError, match="n_lists is 3001; give 1 to 3000"):
        IvfPqIndex.build(vectors, n_lists=3001)
    with pytest.raises(ConfigError, match="code_bytes is 5; give a divisor of 16"):
        IvfPqIndex.build(vectors, code_bytes=5)
    with pytest.raises(ConfigError, match="64 MiB"):
        IvfPqIndex.build(vectors, max_memory=1000)
    with pytest.raises(UmpteenError, match=r"shape \(0, 16\)"):
        IvfPqIndex.build(vectors[:0])


def test_nothing_is_printed(vectors, capfd):
    IvfPqIndex.build(vectors[:300]).search(vectors[:3], 2)
    assert capfd.readouterr() == ("", "")
