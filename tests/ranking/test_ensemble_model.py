"""The file of the fitted ensemble, and the choice of a variant by what it leaves out."""

import json
from dataclasses import replace

import pytest
import torch

from umpteen.errors import ConfigError, RunError
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.prior import prior_calibration, prior_weights
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS, retrievers_of
from umpteen.ranking.variants import PropensityModel, Variant, scorer_combinations

from .samples import made


def variant(scorers):
    retrievers = retrievers_of(scorers, RETRIEVER_SPECS)
    return Variant(
        prior_weights(retrievers),
        0.25,
        prior_calibration(retrievers, 3.0),
        {"P@1": 50.0},
        {"dual": 100.0},
    )


@pytest.fixture
def model():
    variants = tuple(variant(scorers) for scorers in scorer_combinations(RETRIEVER_SPECS))
    return EnsembleModel(
        variants,
        KnnConfig(20, 0.05),
        KnnConfig(),
        PropensityModel(0.5, 1.5, 90),
        "best-3",
        "9 queries",
    )


def test_a_model_survives_its_file(model, tmp_path):
    path = tmp_path / "ensemble.json"
    model.save(path)
    again = EnsembleModel.load(path)
    fresh, _ = made(n=13)
    assert len(again.variants) == len(model.variants)
    for mine, theirs in zip(model.variants, again.variants, strict=True):
        expected = mine.scores(fresh, model.propensity)
        assert torch.equal(theirs.scores(fresh, again.propensity), expected)
        assert torch.equal(
            theirs.probabilities(expected, fresh), mine.probabilities(expected, fresh)
        )
        assert theirs.validation == mine.validation
        assert theirs.contributions == mine.contributions
    assert (again.knn, again.lexical_knn) == (KnnConfig(20, 0.05), KnnConfig())
    assert (again.n_train, again.model, again.fitted_on) == (90, "best-3", "9 queries")
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()


def test_variants_are_chosen_by_what_they_leave_out(model):
    assert model.variant() is model.variants[0]
    assert model.variant(["knn"]).scorers == ("dual", "classifier", "lexical", "backlinks", "names")
    assert "lexical_knn" not in model.variant(["knn"]).retrievers
    assert model.variant(["lexical", "knn", "backlinks", "names"]).scorers == ("dual", "classifier")
    with pytest.raises(ConfigError, match="no scorer 'votes'; use one of dual, classifier"):
        model.variant(["votes"])
    with pytest.raises(ConfigError, match=r"without dual, knn\. Fitted: dual, classifier, knn"):
        model.variant(["dual", "knn"])


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 1},
        {"variants": []},
        {"variants": [{}]},
        {"variants": None},
        {"knn": {"neighbours": 0, "temperature": 0.1}},
        {"knn": {"neighbours": 2.5, "temperature": 0.1}},
        {"knn": {"neighbours": 5, "temperature": "warm"}},
        {"knn": {"neighbours": 5, "temperature": 0.1, "more": 1}},
        {"lexical_knn": None},
        {"propensity": {"a": 0.5, "b": 1.5}},
        {"propensity": {"a": float("nan"), "b": 1.5, "n_train": 3}},
        {"model": None},
        {"surplus": 1},
    ],
)
def test_damage_is_reported(model, tmp_path, damage):
    path = tmp_path / "ensemble.json"
    model.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(RunError, match=r"ensemble\.json is damaged: .*Fit the ensemble again"):
        EnsembleModel.load(path)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"format": 2}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "ensemble.json"
    with pytest.raises(RunError, match="missing"):
        EnsembleModel.load(path)
    path.write_text(text)
    with pytest.raises(RunError, match=r"ensemble\.json"):
        EnsembleModel.load(path)


def test_a_model_without_validation_metrics_has_prior_weights(model):
    prior = replace(model.variants[0], validation={})
    assert model.is_fitted
    assert not replace(model, variants=(prior, *model.variants[1:])).is_fitted
