"""An ensemble that was cross-validated belongs to the run's own model."""

from small_runs import fit

from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.runs import RunFolder


def test_it_names_the_model_and_training_texts_of_the_run(tiny_data, tmp_path):
    run = tmp_path / "run"
    predictor = fit(tiny_data, run)  # too few validation texts: it is cross-validated
    stored = EnsembleModel.load(run / "ensemble" / "ensemble.json")
    assert stored.model == RunFolder(run).model("best").name
    assert stored.n_train == len(predictor.snapshot().examples)
    assert predictor.heads[-1] == "ensemble"
