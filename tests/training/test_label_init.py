"""The label vectors that a run starts from."""

import math

import torch
from small_runs import fit

from umpteen.model.storage import load_model
from umpteen.runs import RunFolder

ODDS = (
    "model.heads=['classifier']",
    "model.label_init=odds",
    "pool.scope=all",
    "loss.classifier=bce",
    "loss.reduction=pal",
    "batches.clustered=false",
    "model.classifier_temperature=0.5",
    "train.lr_encoder=0",
    "train.lr_heads=0",
    "train.lr_labels=0",
    "train.weight_decay=0",
    "train.epochs=1",
    "validation.share=0",
)


def test_scores_start_at_the_odds_of_a_label(tiny_data, tmp_path):
    fit(tiny_data, tmp_path / "run", *ODDS, "ensemble.enabled=off")
    model, *_ = load_model(RunFolder(tmp_path / "run").model("last"))
    model.eval()
    encoded = torch.randn(2000, model.encoder.dim)
    scores = model.scale("classifier") * model.classifier(encoded) @ model.label_vectors.T
    targets = tiny_data["train"].filtered_targets()
    share = targets.nnz / (targets.shape[0] * targets.shape[1])
    odds = math.log(share / (1 - share))
    nothing = model.classifier(torch.zeros(1, model.encoder.dim))
    first = model.scale("classifier") * nothing @ model.label_vectors.T
    assert torch.allclose(first, torch.full_like(first, odds), atol=1e-5)
    assert abs(scores.mean().item() - odds) < 0.1
    # As much pushes down as pulls up: the labels a query seems to have are those it has.
    assert abs(first.sigmoid().sum().item() - targets.nnz / targets.shape[0]) < 1e-4
