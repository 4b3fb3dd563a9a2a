"""A tiny run with a re-ranking stage, fitted once."""

import shutil
from dataclasses import replace

import pytest


@pytest.fixture(scope="session")
def reranked(tiny_run, tiny_data, tmp_path_factory):
    """The run and the outcome; copy the run before changing it."""
    from umpteen.config.settings import from_mapping
    from umpteen.run_folder import RunFolder
    from umpteen.training.rerank import rerank_run
    from umpteen.training.run_to_rerank import RerankOptions

    place = tmp_path_factory.mktemp("reranked")
    run = shutil.copytree(tiny_run, place / "run")
    folder = RunFolder(run)
    settings = from_mapping(folder.read_settings(), source="config")
    options = RerankOptions(candidates=8, folds=2, epochs=6, keep="always")
    lines = []
    outcome = rerank_run(
        folder, tiny_data, settings, options, device="cpu", log=lines.append, cache=place / "cache"
    )
    # So few texts decide nothing: with a fixed weight the stage is at work on every machine.
    first, *others = outcome.ensemble.model.variants
    spec = replace(first.reranking, weight=1.0, min_share=0.0)
    variants = (replace(first, reranking=spec), *others)
    replace(outcome.ensemble.model, variants=variants).save(folder.ensemble / "ensemble.json")
    return run, outcome
