"""Mixed queries: vectors and targets against a dense mixture, and whole runs."""

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, fit, outcome, stop_at

from umpteen.config.loading import load_config
from umpteen.data.pool import Pool
from umpteen.errors import ConfigError
from umpteen.training import prepare
from umpteen.training.mixup import KINDS, Mixing
from umpteen.types import Positives

B, C, N_TEXT = 7, 9, 6


def pool(rng, ignored=()):
    dense = (rng.random((B, C)) < 0.4) * rng.uniform(0.1, 1, (B, C))
    for row, col in ignored:
        dense[row, col] = 0
    rows, cols = np.nonzero(dense)
    positives = Positives(rows, cols, dense[rows, cols].astype(np.float32))
    pairs = np.array(ignored, np.int64).reshape(-1, 2)
    return Pool(np.arange(C), N_TEXT, positives, pairs), dense


def as_dense(found):
    dense = np.zeros((B, C))
    np.add.at(dense, (found.rows, found.cols), found.targets)
    assert len(set(zip(found.rows.tolist(), found.cols.tolist(), strict=True))) == len(found)
    return dense


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_targets_are_the_dense_mixture(kind, seed):
    rng = np.random.default_rng(seed)
    before, dense = pool(rng)
    after, mix = Mixing(kind, 0.7)(before, B, rng)
    shares = mix.weights[:, None]
    if kind == "mixup":
        theirs = dense[mix.partners]
    else:
        assert ((mix.partners >= B) & (mix.partners < B + N_TEXT)).all()
        theirs = np.eye(C)[mix.partners - B]
    np.testing.assert_allclose(
        as_dense(after.positives), shares * dense + (1 - shares) * theirs, atol=1e-6
    )
    assert (after.positives.targets <= 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_the_same_mixture(kind):
    rng = np.random.default_rng(3)
    _, mix = Mixing(kind, 0.7)(pool(rng)[0], B, rng)
    encoded = torch.randn(B + N_TEXT, 4, generator=torch.Generator().manual_seed(1))
    shares = torch.from_numpy(mix.weights)[:, None]
    expected = shares * encoded[:B] + (1 - shares) * encoded[mix.partners]
    torch.testing.assert_close(mix.vectors(encoded), expected)


def test_a_pair_that_counts_neither_way_for_a_partner_counts_neither_way():
    rng = np.random.default_rng(4)
    after, mix = Mixing("mixup", 1.0)(pool(rng, [(2, 5), (6, 0)])[0], B, rng)
    holders = np.argsort(mix.partners)
    expected = {(2, 5), (6, 0), (int(holders[2]), 5), (int(holders[6]), 0)}
    assert {tuple(pair) for pair in after.ignored.tolist()} == expected
    dense = as_dense(after.positives)
    assert not any(dense[pair] for pair in expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", ["['dual', 'classifier']", "['classifier']"])
def test_runs_with_mixed_queries_resume_to_the_same(tiny_data, tmp_path, kind, heads):
    changes = (f"augment.method={kind}", f"model.heads={heads}", "train.epochs=2")
    fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *changes)
    stop_at(3, tiny_data, tmp_path / "cut", *changes)
    fit(tiny_data, tmp_path / "cut", resume=True)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    fit(tiny_data, tmp_path / "plain", *changes[1:])
    assert outcome(tmp_path / "plain")["steps"] != outcome(tmp_path / "whole")["steps"]


def test_mixing_against_all_labels_is_refused():
    with pytest.raises(ConfigError, match=r"augment\.method must be another one unless"):
        load_config(overrides=["augment.method=mixup", "pool.scope=all"])


def test_synonyms_double_the_rows_with_the_same_targets(tiny_data, monkeypatch):
    pytest.importorskip("wordllama")
    config = load_config(overrides=[*SETTINGS, "augment.method=synonyms", "augment.word_share=0.5"])
    splits = prepare.training_splits(tiny_data, config)
    found = prepare.augmented(splits, config)
    n = len(splits["train"])
    half = found.split.select(np.arange(n, 2 * n))
    assert len(found.split) == 2 * n
    np.testing.assert_array_equal(half.targets.toarray(), splits["train"].targets.toarray())
    np.testing.assert_array_equal(half.filters, splits["train"].filters)
    assert list(found.split.titles[:n]) == list(splits["train"].titles)
    assert half.titles != list(splits["train"].titles)
    np.testing.assert_array_equal(found.sources, [*range(n), *range(n)])
