"""The exact index against a sort of the whole score matrix, ties included."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.errors import ConfigError, RunError, UmpteenError
from umpteen.index import exact as module
from umpteen.index.exact import ExactIndex


def brute_force(scores, k):
    """Sort every row by falling score, then by rising label row; -inf is no prediction."""
    rows = np.full((len(scores), k), -1)
    best = np.full((len(scores), k), -np.inf, np.float32)
    for i, line in enumerate(scores):
        order = sorted((-s, row) for row, s in enumerate(line.tolist()) if s != -np.inf)[:k]
        rows[i, : len(order)] = [row for _, row in order]
        best[i, : len(order)] = [-s for s, _ in order]
    return rows, best


def integers(rng, n, dim, spread=2):
    """Integer-valued vectors: products are exact in float32 and ties are everywhere."""
    return rng.integers(-spread, spread + 1, (n, dim)).astype(np.float32)


@pytest.mark.parametrize("n_labels", [1, 7, 64, 1001])
@pytest.mark.parametrize("k", [1, 5, 70, 200])
@pytest.mark.parametrize("memory_bytes", [None, 3000, 64])
def test_ties_come_in_row_order(monkeypatch, n_labels, k, memory_bytes):
    monkeypatch.setitem(module.LABELS_PER_BLOCK, "cpu", 300)
    rng = np.random.default_rng(n_labels + k)
    vectors, queries = integers(rng, n_labels, 5), integers(rng, 11, 5)
    index = ExactIndex.build(vectors, memory_bytes=memory_bytes)
    top = index.search(queries, k)
    rows, scores = brute_force(queries @ vectors.T, k)
    assert top.rows.tolist() == rows.tolist()
    assert top.scores.tolist() == scores.tolist()
    assert (top.rows.dtype, top.scores.dtype) == (np.int64, np.float32)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_shape_blocks_exclusions_and_masks(data):
    n_queries = data.draw(st.integers(1, 9))
    n_labels = data.draw(st.integers(1, 150))
    k = data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    vectors, queries = integers(rng, n_labels, 3, 1), integers(rng, n_queries, 3, 1)
    scores = queries @ vectors.T
    count = data.draw(st.integers(0, 200))
    exclude = np.stack(
        [rng.integers(0, n_queries, count), rng.integers(0, n_labels, count)], axis=1
    )
    scores[exclude[:, 0], exclude[:, 1]] = -np.inf
    allowed = rng.random(n_labels) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    scores[:, ~allowed] = -np.inf
    memory_bytes = data.draw(st.sampled_from([40, 400, 4000, 10**6]))
    index = ExactIndex.build(vectors, memory_bytes=memory_bytes)
    top = index.search(queries, k, exclude=exclude, allowed=allowed)
    rows, best = brute_force(scores, k)
    assert top.rows.tolist() == rows.tolist()
    assert top.scores.tolist() == best.tolist()


def test_tie_of_positive_and_negative_zero_is_a_tie():
    vectors = np.zeros((9, 1), np.float32)
    vectors[::2] = -0.0
    top = ExactIndex.build(vectors).search(np.ones((1, 1), np.float32), 4)
    assert top.rows.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_vectors_agree_with_a_double_precision_product(dtype):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3001, 33)).astype(np.float32)
    queries = rng.standard_normal((17, 33)).astype(np.float32)
    top = ExactIndex.build(vectors, dtype=dtype, memory_bytes=40_000).search(queries, 10)
    if dtype == "bfloat16":
        vectors = torch.from_numpy(vectors).bfloat16().float().numpy()
        queries = torch.from_numpy(queries).bfloat16().float().numpy()
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    rows, best = brute_force(scores, 10)
    # The products are summed in float32 in both cases; 33 terms of size one.
    np.testing.assert_allclose(top.scores, best, rtol=1e-5, atol=1e-5)
    assert (top.rows == rows).mean() > 0.99


@pytest.mark.parametrize("n_queries", [1, 2, 7, 8, 9])
def test_few_queries_get_what_many_get(monkeypatch, n_queries):
    monkeypatch.setitem(module.LABELS_PER_BLOCK, "cpu", 37)
    rng = np.random.default_rng(n_queries)
    vectors, queries = integers(rng, 331, 12), integers(rng, 9, 6)
    columns = torch.from_numpy(vectors)[:, 3:9]  # as the vectors of one head lie among others
    index = ExactIndex(columns)
    exclude = np.array([[0, 5], [0, 330]])
    top = index.search(queries[:n_queries], 11, exclude=exclude)
    scores = queries[:n_queries] @ vectors[:, 3:9].T
    scores[0, [5, 330]] = -np.inf
    rows, best = brute_force(scores, 11)
    assert top.rows.tolist() == rows.tolist()
    assert top.scores.tolist() == best.tolist()


def test_torch_and_numpy_give_the_same():
    rng = np.random.default_rng(1)
    vectors, queries = integers(rng, 50, 4), integers(rng, 3, 4)
    first = ExactIndex.build(vectors).search(queries, 6)
    tensor = torch.from_numpy(vectors).double().requires_grad_()
    second = ExactIndex.build(tensor).search(torch.from_numpy(queries).requires_grad_(), 6)
    assert first.rows.tolist() == second.rows.tolist()


def test_inputs_are_not_changed():
    rng = np.random.default_rng(2)
    vectors, queries = integers(rng, 40, 4), integers(rng, 3, 4)
    before = vectors.copy(), queries.copy()
    exclude = np.array([[2, 1], [0, 5]])
    ExactIndex.build(vectors).search(queries, 6, exclude=exclude, allowed=np.ones(40, bool))
    assert np.array_equal(vectors, before[0])
    assert np.array_equal(queries, before[1])
    assert exclude.tolist() == [[2, 1], [0, 5]]


def test_no_queries_give_an_empty_answer():
    top = ExactIndex.build(np.ones((4, 2), np.float32)).search(np.empty((0, 2), np.float32), 3)
    assert top.rows.shape == top.scores.shape == (0, 3)


def test_loaded_vectors_are_mapped_and_the_file_stays_as_it_is(tmp_path):
    rng = np.random.default_rng(3)
    vectors = integers(rng, 40, 4)
    ExactIndex.build(vectors).save(tmp_path / "index")
    before = (tmp_path / "index" / "vectors.npy").read_bytes()
    index = ExactIndex.load(tmp_path / "index")
    index.vectors.zero_()
    assert (tmp_path / "index" / "vectors.npy").read_bytes() == before


@pytest.mark.parametrize("field", ["n_labels", "dim", "dtype", "kind", "format"])
def test_folder_that_contradicts_itself_is_refused(tmp_path, field):
    folder = tmp_path / "index"
    ExactIndex.build(np.ones((4, 2), np.float32)).save(folder)
    about = json.loads((folder / "index.json").read_text())
    about[field] = 99
    (folder / "index.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match="build the index again"):
        ExactIndex.load(folder)


def test_cut_file_is_refused(tmp_path):
    folder = tmp_path / "index"
    ExactIndex.build(np.ones((400, 2), np.float32)).save(folder)
    content = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(content[:-100])
    with pytest.raises(RunError, match=r"vectors\.npy cannot be read"):
        ExactIndex.load(folder)


def test_saving_never_replaces_a_folder_that_is_no_index(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UmpteenError, match="exists already"):
        ExactIndex.build(np.ones((4, 2), np.float32)).save(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_wrong_input_is_named():
    index = ExactIndex.build(np.ones((4, 2), np.float32))
    query = np.ones((1, 2), np.float32)
    with pytest.raises(UmpteenError, match="1 label vectors hold NaN"):
        ExactIndex.build(np.array([[1.0], [np.nan]], np.float32))
    with pytest.raises(UmpteenError, match=r"shape \(3,\)"):
        ExactIndex.build(np.ones(3, np.float32))
    with pytest.raises(ConfigError, match="dtype 'int4' is not known"):
        ExactIndex.build(np.ones((4, 2), np.float32), dtype="int4")
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(query, 0)
    with pytest.raises(UmpteenError, match="2 dimensions"):
        index.search(np.ones((1, 3), np.float32), 1)
    with pytest.raises(ValueError, match="outside 1 queries x 4 labels"):
        index.search(query, 1, exclude=np.array([[0, 4]]))
    with pytest.raises(ValueError, match=r"allowed must be \(4,\) bool"):
        index.search(query, 1, allowed=np.ones(3, bool))
    with pytest.raises(ValueError, match="queries hold NaN"):
        index.search(query * np.nan, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("n_labels", "k"), [(7, 20), (5003, 20), (5003, 200), (70_001, 200)])
def test_gpu_gives_what_the_cpu_gives(dtype, n_labels, k):
    rng = np.random.default_rng(4)
    vectors, queries = integers(rng, n_labels, 9), integers(rng, 65, 9)
    exclude = np.stack([rng.integers(0, 65, 900), rng.integers(0, n_labels, 900)], axis=1)
    allowed = rng.random(n_labels) < 0.9
    answers = [
        ExactIndex.build(vectors, device=device, dtype=dtype, memory_bytes=8 << 20).search(
            queries, k, exclude=exclude, allowed=allowed
        )
        for device in ("cpu", "cuda")
    ]
    assert np.array_equal(answers[0].rows, answers[1].rows)
    assert np.array_equal(answers[0].scores, answers[1].scores)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("columns", [slice(None), slice(3, 9)])
def test_vectors_on_the_host_visit_the_gpu_and_give_the_same(columns, monkeypatch):
    monkeypatch.setitem(module.LABELS_PER_BLOCK, "cuda", 1000)
    rng = np.random.default_rng(5)
    vectors, queries = integers(rng, 5003, 12)[:, columns], integers(rng, 65, 12)[:, columns]
    exclude = np.stack([rng.integers(0, 65, 900), rng.integers(0, 5003, 900)], axis=1)
    there = ExactIndex(torch.from_numpy(vectors), device=torch.device("cuda"))
    found = there.search(queries, 20, exclude=exclude)
    wanted = ExactIndex.build(vectors).search(queries, 20, exclude=exclude)
    assert there.vectors.device.type == "cpu"
    assert np.array_equal(found.rows, wanted.rows)
    assert np.array_equal(found.scores, wanted.scores)


def test_a_first_pass_over_vectors_that_are_elsewhere_is_refused():
    vectors = torch.zeros(3, 2, device="meta")
    with pytest.raises(ConfigError, match="'bfloat16' needs the vectors on cpu"):
        ExactIndex(vectors, first_pass="bfloat16", device=torch.device("cpu"))
