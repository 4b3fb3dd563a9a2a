"""How many labels a refresh keeps for hard negatives, by the settings."""

import numpy as np
import pytest
from small_runs import fit

from umpteen.config.loading import load_config
from umpteen.errors import ConfigError


def test_the_shortlist_is_negatives_times_epochs_unless_it_is_set():
    plain = load_config("unidec", ["pool.negatives=6", "batches.refresh_epochs=5"])
    assert plain.mined_labels == 30
    assert load_config("unidec", ["pool.shortlist_size=100"]).mined_labels == 100
    assert load_config("dexml-sampled").mined_labels == 100
    assert load_config("ance").mined_labels == 200
    assert load_config("dpr").mined_labels == 0  # in-batch labels alone
    assert load_config("dexml").mined_labels == 0  # all labels: nothing to draw


def test_a_shortlist_shorter_than_the_draws_is_refused():
    with pytest.raises(ConfigError, match=r"shortlist_size must be 0, or at least .* \(6\)"):
        load_config("unidec", ["pool.negatives=6", "pool.shortlist_size=5"])
    assert load_config("dexml-sampled", ["pool.negatives=0"]).mined_labels == 0


@pytest.mark.parametrize(("size", "kept"), [(0, 4), (7, 7)])
def test_a_refresh_of_a_run_keeps_the_shortlist(tiny_data, tmp_path, size, kept):
    run = tmp_path / "run"
    fit(tiny_data, run, "train.epochs=1", f"pool.shortlist_size={size}")
    (file,) = run.rglob("negatives.npy")
    assert np.load(file).shape[1] == kept
