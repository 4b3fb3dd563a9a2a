"""The label vectors that a run starts from."""

import math

import torch
from small_runs import fit

from umpteen.model.storage import load_model
from umpteen.run_folder import RunFolder

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


def test_random_label_vectors_are_small_and_follow_the_seed(tiny_data, tmp_path):
    still = ("train.lr_labels=0", "train.epochs=1", "train.weight_decay=0", "model.dim=64")
    tables = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fit(tiny_data, tmp_path / name, "model.label_init=random", f"seed={seed}", *still)
        model, *_ = load_model(RunFolder(tmp_path / name).model("last"))
        tables.append(model.label_vectors.detach())
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    n = tables[0].numel()
    assert abs(tables[0].std().item() - 0.02) < 5 * 0.02 / math.sqrt(2 * n)


def test_each_rank_draws_its_part_of_the_whole_table(monkeypatch):
    from umpteen.compute.distributed.sharding import ONE_RANK
    from umpteen.training import label_init

    class Part:
        def __init__(self, start, stop):
            self.own = range(start, stop)

        def shard(self, n):
            return self.own

    class Holder:
        n_labels, dim = 11, 3

        def __init__(self, rows):
            self.label_vectors = torch.nn.Parameter(torch.zeros(rows, 3))

    monkeypatch.setattr(label_init, "LABELS_AT_ONCE", 4)
    whole = Holder(11)
    label_init.init_at_random_(whole, seed=5, ranks=ONE_RANK)
    for start, stop in ((0, 6), (6, 11)):
        part = Holder(stop - start)
        label_init.init_at_random_(part, seed=5, ranks=Part(start, stop))
        assert torch.equal(part.label_vectors, whole.label_vectors[start:stop])
