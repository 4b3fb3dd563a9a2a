"""What is particular to faiss; the laws are in tests/contracts."""

import sys

import numpy as np
import pytest

from umpteen.errors import ConfigError, MissingExtra, RunError
from umpteen.index.exact import ExactIndex
from umpteen.index.faiss_index import FaissIndex
from umpteen.index.faiss_kinds import default_factory
from umpteen.index.recall import recall

VECTORS = np.random.default_rng(0).standard_normal((700, 16)).astype(np.float32)
QUERIES = np.random.default_rng(1).standard_normal((31, 16)).astype(np.float32)


def test_missing_extra_has_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pip install 'umpteen\[faiss\]'"):
        FaissIndex.build(VECTORS)


@pytest.mark.parametrize(
    ("n_labels", "factory"),
    [
        (1, "Flat"),
        (19_999, "Flat"),
        (56_624, "HNSW32_SQ8,RFlat"),
        (300_000, "IVF2048,Flat"),
        (8_000_000, "IVF8192,SQ8"),
    ],
)
def test_default_grows_with_the_labels(n_labels, factory):
    assert default_factory(n_labels) == factory


class TestWithFaiss:
    @pytest.fixture(autouse=True)
    def _faiss(self):
        pytest.importorskip("faiss")

    def test_flat_is_exact(self):
        exact = ExactIndex.build(VECTORS)
        assert recall(FaissIndex.build(VECTORS, factory="Flat"), exact, QUERIES, 13) == 1.0

    def test_more_effort_finds_more(self):
        exact = ExactIndex.build(VECTORS)
        shares = [
            recall(FaissIndex.build(VECTORS, factory="IVF32,Flat", nprobe=n), exact, QUERIES, 10)
            for n in (1, 8, 32)
        ]
        assert shares[0] < shares[1] <= shares[2] == 1.0

    def test_effort_can_be_chosen_when_loading(self, tmp_path):
        FaissIndex.build(VECTORS, factory="IVF32,Flat", nprobe=2).save(tmp_path / "index")
        assert FaissIndex.load(tmp_path / "index").effort == 2
        assert FaissIndex.load(tmp_path / "index", nprobe=32).effort == 32
        with pytest.raises(ConfigError, match="HNSW indexes alone"):
            FaissIndex.load(tmp_path / "index", ef_search=3)

    def test_equal_scores_come_in_row_order(self):
        vectors = np.repeat(VECTORS[:50], 3, axis=0)
        top = FaissIndex.build(vectors, factory="Flat").search(QUERIES, 9)
        assert (np.diff(top.rows.reshape(-1, 3, 3), axis=2) == 1).all()

    def test_refinement_gives_full_scores_and_outlives_saving(self, tmp_path):
        index = FaissIndex.build(VECTORS, factory="HNSW16_SQ8,RFlat", ef_search=200)
        index.save(tmp_path / "index")
        exact = ExactIndex.build(VECTORS).search(QUERIES, 10)
        for each in (index, FaissIndex.load(tmp_path / "index")):
            found = each.search(QUERIES, 10)
            assert (found.rows == exact.rows).mean() > 0.99
            same = found.rows == exact.rows
            np.testing.assert_allclose(found.scores[same], exact.scores[same], atol=1e-5)

    def test_candidates_of_a_graph_take_half_the_effort_and_are_nearly_the_same(self):
        index = FaissIndex.build(VECTORS, factory="HNSW16_SQ8,RFlat", ef_search=200)
        rough = index.rough
        assert (rough.effort, rough.n_labels) == (100, index.n_labels)
        best, found = (each.search(VECTORS[:50], 20).rows for each in (index, rough))
        assert (best[:, :, None] == found[:, None, :]).any(axis=2).mean() > 0.95
        lists = FaissIndex.build(VECTORS, factory="IVF4,Flat")
        assert lists.rough is lists

    def test_one_query_and_many_take_the_same_way_with_and_without_something_to_drop(self):
        index = FaissIndex.build(VECTORS, factory="HNSW16_SQ8,RFlat", ef_search=50)
        plain = index.search(QUERIES, 7)
        none = np.empty((0, 2), np.int64)
        general = index.search(QUERIES, 7, exclude=none, allowed=np.ones(700, np.bool_))
        assert np.array_equal(plain.rows, general.rows)
        assert np.array_equal(plain.scores, general.scores)

    def test_graph_is_built_by_one_thread_and_the_number_restored(self):
        faiss = pytest.importorskip("faiss")
        before = faiss.omp_get_max_threads()
        FaissIndex.build(VECTORS, factory="HNSW8")
        assert faiss.omp_get_max_threads() == before

    def test_unknown_factory_is_named(self):
        with pytest.raises(ConfigError, match="faiss cannot make 'IFV16'"):
            FaissIndex.build(VECTORS, factory="IFV16")

    def test_more_lists_than_labels_is_refused(self):
        with pytest.raises(ConfigError, match="1024 lists, but there are 700 labels"):
            FaissIndex.build(VECTORS, factory="IVF1024,Flat")

    def test_codes_that_cannot_be_trained_are_refused(self):
        with pytest.raises(ConfigError, match="cannot train 'PQ4' on 100 vectors"):
            FaissIndex.build(VECTORS[:100], factory="PQ4")

    @pytest.mark.parametrize(
        ("factory", "says"),
        [
            ("IVF0,Flat", "'IVF0,Flat' has no inverted list"),
            ("HNSW0", "less than 2 neighbours"),  # faiss ends the process on these two
            ("HNSW1_SQ8,RFlat", "less than 2 neighbours"),
            ("IDMap,Flat", "cannot add 60 vectors to 'IDMap,Flat'"),
            ("NSG8", "cannot add 60 vectors to 'NSG8'"),
        ],
    )
    def test_factories_that_faiss_makes_and_cannot_fill_are_refused(self, factory, says):
        with pytest.raises(ConfigError, match=says):
            FaissIndex.build(VECTORS[:60], factory=factory)

    def test_a_graph_of_two_neighbours_is_built(self):
        found = FaissIndex.build(VECTORS[:60], factory="HNSW2", ef_search=60)
        assert found.search(QUERIES, 1).rows.shape == (31, 1)

    def test_option_of_another_kind_is_refused(self):
        with pytest.raises(ConfigError, match="nprobe is 4; it is for IVF"):
            FaissIndex.build(VECTORS, factory="HNSW8", nprobe=4)

    def test_damaged_file_is_refused(self, tmp_path):
        FaissIndex.build(VECTORS).save(tmp_path / "index")
        file = tmp_path / "index" / "labels.faiss"
        file.write_bytes(file.read_bytes()[:200])
        with pytest.raises(RunError, match="labels.faiss is damaged: its checksum"):
            FaissIndex.load(tmp_path / "index")
