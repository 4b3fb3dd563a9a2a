import numpy as np
import pytest
import torch

from umpteen.data.dataset import targets_from_rows
from umpteen.data.tokens import TokenStore
from umpteen.errors import RunError
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.model import Model
from umpteen.training import refresh_cost
from umpteen.training.refresh import Refreshed, Refresher
from umpteen.training.stage_log import StageLog

N, L, V = 23, 11, 19


def random_store(n, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n)
    ids = rng.integers(0, V, lengths.sum()).astype(np.uint16)
    return TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]))


def make_model(heads=("dual", "classifier"), **options):
    torch.manual_seed(1)
    encoder = BagEncoder(torch.randn(V, 6), dropout=0.5)
    model = Model(encoder, heads=heads, dim=5, n_labels=L, **options)
    if model.label_vectors is not None:
        torch.nn.init.normal_(model.label_vectors)
    return model.train()


def make_refresher(**options):
    rng = np.random.default_rng(2)
    rows = [rng.choice(L, rng.integers(0, 4), replace=False).tolist() for _ in range(N)]
    settings = {
        "queries": random_store(N, 0),
        "labels": random_store(L, 1),
        "targets": targets_from_rows(rows, L),
        "filters": np.array([[0, 1], [0, 2], [7, 10]]),
        "cluster_size": lambda epoch: 6,
        "negatives_kept": 4,
        "seed": 3,
        "precision": "fp32",
        **options,
    }
    return Refresher(**settings)


def scores(model, refresher):
    """(N, L) cosines of the head that is searched with, one text at a time."""
    model.eval()
    with torch.no_grad():
        queries = [model.encode(refresher.queries.take([i])) for i in range(N)]
        if model.dual_head is None:
            left = torch.cat([model.classifier(q) for q in queries])
            right = model.label_vectors
        else:
            left = torch.cat([model.dual(q) for q in queries])
            right = torch.cat(
                [model.dual(model.encode(refresher.labels.take([i]))) for i in range(L)]
            )
        return torch.nn.functional.cosine_similarity(left[:, None], right[None], dim=2).numpy()


@pytest.mark.parametrize("heads", [("dual", "classifier"), ("dual",), ("classifier",)])
@pytest.mark.parametrize("kept", [4, 30])
def test_negatives_are_the_nearest_labels_without_positives_and_filters(heads, kept):
    model, refresher = make_model(heads), make_refresher(negatives_kept=kept)
    negatives = refresher(model, 0).negatives
    assert negatives.shape == (N, kept)
    cosines = scores(model, refresher)
    known = refresher.targets.toarray() > 0
    known[refresher.filters[:, 0], refresher.filters[:, 1]] = True
    for query in range(N):
        allowed = [label for label in np.argsort(-cosines[query]) if not known[query, label]]
        found = negatives[query].tolist()
        wanted = allowed[:kept]
        assert found[: len(wanted)] == wanted
        assert found[len(wanted) :] == [-1] * (kept - len(wanted))  # padding, not a label


def test_label_vectors_of_zeros_give_random_negatives_and_no_row_is_preferred():
    model, refresher = make_model(("classifier",)), make_refresher(negatives_kept=2)
    torch.nn.init.zeros_(model.label_vectors)
    negatives = refresher(model, 0).negatives
    assert np.array_equal(negatives, refresher(model, 0).negatives)
    assert len(np.unique(negatives)) > L // 2
    known = refresher.targets.toarray() > 0
    assert not known[np.arange(N)[:, None], negatives].any()
    assert not model.label_vectors.any()


def test_without_normalizing_labels_are_mined_by_scores_and_queries_clustered_by_direction():
    model, refresher = make_model(("dual",), normalize=False).eval(), make_refresher()
    refreshed = refresher(model, 0)
    with torch.no_grad():
        left = torch.cat([model.dual(model.encode(refresher.queries.take([i]))) for i in range(N)])
        right = torch.cat([model.dual(model.encode(refresher.labels.take([i]))) for i in range(L)])
    known = refresher.targets.toarray() > 0
    known[refresher.filters[:, 0], refresher.filters[:, 1]] = True
    ranked = np.argsort(-np.where(known, -np.inf, (left @ right.T).numpy()), axis=1)
    by_cosine = np.argsort(-np.where(known, -np.inf, scores(model, refresher)), axis=1)
    assert (ranked[:, :4] != by_cosine[:, :4]).any()
    np.testing.assert_array_equal(refreshed.negatives, ranked[:, :4])
    # The same directions in another length are clustered the same.
    model.normalize = model.dual_head.normalize = True
    np.testing.assert_array_equal(refreshed.order, refresher(model, 0).order)
    model.dual_head.normalize = False  # as if lengths counted
    assert not np.array_equal(refreshed.order, refresher(model, 0).order)


def test_every_query_is_in_one_cluster():
    refreshed = make_refresher()(make_model(), 0)
    assert sorted(refreshed.order.tolist()) == list(range(N))
    assert refreshed.bounds.tolist() == [0, 6, 12, 18, 23]
    assert refreshed.order.dtype == refreshed.bounds.dtype == np.int64


def test_a_refresh_depends_on_seed_and_epoch_and_leaves_the_model_training():
    model = make_model()
    state = torch.random.get_rng_state()
    first, again, later = (make_refresher()(model, epoch) for epoch in (1, 1, 2))
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert np.array_equal(first.order, again.order)
    assert np.array_equal(first.negatives, again.negatives)
    assert not np.array_equal(first.order, later.order)


def test_the_kind_of_search_is_used():
    model = make_model()
    exact, rough, clustered = (
        make_refresher(negatives_kept=6, search=kind)(model, 1).negatives
        for kind in ("exact", "float8", "clusters")
    )
    same = [len(set(one) & set(other)) for one, other in zip(exact, rough, strict=True)]
    assert np.mean(same) > 5.5
    same = [len(set(one) & set(other)) for one, other in zip(exact, clustered, strict=True)]
    assert np.mean(same) > 5.0


def test_the_stages_of_a_refresh_are_timed():
    log = StageLog()
    make_refresher(negatives_kept=6, search="clusters", log=log)(make_model(), 1)
    assert set(log.seconds) == {
        "training texts", "label texts", "clusters", "label clusters", "mining",
    }  # fmt: skip


@pytest.mark.parametrize("label_sample", [3, L])
def test_a_sampled_refresh_stands_for_the_whole_one(label_sample, monkeypatch):
    monkeypatch.setattr(refresh_cost, "LABEL_SAMPLE", label_sample)
    refresher = make_refresher(negatives_kept=2)
    found = refresh_cost.sampled_refresh(refresher, make_model(), n_queries=10 * N)
    rows = np.unique(np.linspace(0, L - 1, label_sample).astype(int))
    negatives = found.refreshed.negatives
    assert negatives.shape == (N, 2)
    assert np.isin(negatives[negatives >= 0], rows).all()
    queries, places = np.nonzero(negatives >= 0)
    assert not refresher.targets.toarray()[queries, negatives[queries, places]].any()
    assert found.seconds > found.label_seconds > 0


def test_time_that_other_work_takes_is_not_scaled_up(monkeypatch):
    """Of several refreshes of the sample, the shortest time of a stage counts."""
    mining, clusters = iter((9.0, 1.0, 5.0)), iter((2.0, 7.0, 7.0))

    class Scripted(StageLog):
        def __init__(self):
            super().__init__(clock=lambda: 0.0)
            self.seconds = {"mining": next(mining), "clusters": next(clusters)}

    monkeypatch.setattr(refresh_cost, "StageLog", Scripted)
    found = refresh_cost.sampled_refresh(make_refresher(), make_model(), n_queries=N)
    assert found.seconds == pytest.approx(1.0 + 2.0)


def test_no_negatives_are_mined_when_none_are_kept():
    assert make_refresher(negatives_kept=0)(make_model(), 0).negatives.shape == (N, 0)


def test_what_is_saved_is_what_is_loaded(tmp_path):
    refreshed = make_refresher()(make_model(), 0)
    digests = refreshed.save(tmp_path / "refresh")
    loaded = Refreshed.load(tmp_path / "refresh", digests)
    for field in ("order", "bounds", "negatives"):
        assert np.array_equal(getattr(loaded, field), getattr(refreshed, field))


@pytest.mark.parametrize("name", ["order.npy", "bounds.npy", "negatives.npy"])
def test_a_damaged_or_missing_file_is_an_error(tmp_path, name):
    digests = make_refresher()(make_model(), 0).save(tmp_path / "refresh")
    file = tmp_path / "refresh" / name
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(RunError, match=name):
        Refreshed.load(tmp_path / "refresh", digests)
    file.unlink()
    with pytest.raises(RunError, match=name):
        Refreshed.load(tmp_path / "refresh", digests)


def test_a_refresh_has_threads_of_its_own():
    seen = []
    before = torch.get_num_threads()
    refresher = make_refresher(
        threads=before + 1, tell_labels=lambda labels: seen.append(torch.get_num_threads())
    )
    refresher(make_model(), 0)
    assert (seen, torch.get_num_threads()) == ([before + 1], before)
