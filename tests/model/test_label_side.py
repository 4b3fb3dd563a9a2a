"""Label vectors with a part from texts or neighbours: against dense expressions, and whole runs."""

import json

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, fit, outcome, stop_at
from torch.nn.functional import normalize

from umpteen.config.loading import load_config
from umpteen.data.augment.gandalf import label_targets
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.label_graph import strongest_neighbours
from umpteen.errors import ConfigError
from umpteen.evaluation import evaluate
from umpteen.model.vectors import label_search_vectors
from umpteen.training import prepare
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.factories import build_losses
from umpteen.training.optim import Optimizers
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.step import classifier_loss

SIDES = ("text", "graph")


def parts(data, tmp_path, side, *changes):
    config = resolve_open_settings(
        load_config(
            overrides=[
                *SETTINGS,
                f"model.label_parametrization={side}",
                "model.neighbours=3",
                *changes,
            ]
        )
    )
    splits = prepare.training_splits(data, config)
    model, tokenizer = build_untrained_model(config, splits)
    found = prepare.prepare(splits, config, tokenizer, cache=tmp_path, log=lambda text: None)
    torch.nn.init.normal_(model.label_vectors, generator=torch.Generator().manual_seed(2))
    return config, found, model.eval()


def dense_labels(model, found):
    """Every label's vector by plain dense expressions."""
    texts = model.classifier(model.encode(found.labels.take(np.arange(40))))
    if model.label_parametrization == "text":
        return texts + model.label_vectors
    graph = torch.zeros(40, 40)
    for row in range(40):
        for near, weight in zip(model.graph_rows[row], model.graph_weights[row], strict=True):
            graph[row, int(near)] += weight
    return texts + graph @ model.label_vectors


@pytest.mark.parametrize("side", SIDES)
def test_search_vectors_are_the_dense_sum(tiny_data, tmp_path, side):
    _, found, model = parts(tiny_data, tmp_path, side, "model.heads=['classifier']")
    expected = normalize(dense_labels(model, found), dim=1)
    torch.testing.assert_close(label_search_vectors(model, found.labels), expected)


@pytest.mark.parametrize("side", SIDES)
def test_the_loss_and_its_gradients_are_those_of_the_dense_sum(tiny_data, tmp_path, side):
    config, found, model = parts(tiny_data, tmp_path, side)
    losses = build_losses(config.loss)
    loop = build_loop(config, found, model, keep_refresh=lambda *_: None, precision="fp32")
    batch = loop.maker.make(np.arange(11), 3)
    encoded = model.eval().encode(batch.tokens)
    loss = classifier_loss(model, batch, losses, encoded[:11], encoded[11:])
    loss.backward()
    own = model.label_vectors.grad.to_dense()
    model.zero_grad()

    class Dense:
        """The model with label rows taken from the dense table."""

        label_rows = staticmethod(lambda rows: dense_labels(model, found)[rows])
        classifier = model.classifier
        classifier_scores = model.classifier_scores

    expected = classifier_loss(Dense, batch, losses, model.encode(batch.tokens)[:11])
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(own, model.label_vectors.grad, atol=1e-6, rtol=1e-4)


def test_neighbours_shared_by_several_labels_are_updated_once(tiny_data, tmp_path):
    _, _, model = parts(tiny_data, tmp_path, "graph")
    dense = model.label_vectors.detach().clone().requires_grad_()
    rates = {"lr_encoder": 0.0, "lr_heads": 0.0, "lr_labels": 0.01}
    optimizers = Optimizers(model, **rates, weight_decay=0.0)
    plain = torch.optim.AdamW([dense], lr=0.01, weight_decay=0.0)
    rows = torch.arange(40)
    aims = torch.randn(40, 16, generator=torch.Generator().manual_seed(4))
    graph = torch.zeros(40, 40).scatter_add(1, model.graph_rows.long(), model.graph_weights)
    for _ in range(3):
        ((model.label_rows(rows) - aims) ** 2).sum().backward()
        ((graph @ dense - aims) ** 2).sum().backward()
        optimizers.step(1.0, clip_norm=0.0)
        plain.step()
        plain.zero_grad()
    torch.testing.assert_close(model.label_vectors, dense, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("heads", ["['dual', 'classifier']", "['classifier']"])
def test_runs_resume_to_the_same_and_load_again(tiny_data, tmp_path, side, heads):
    changes = (f"model.label_parametrization={side}", f"model.heads={heads}", "train.epochs=2")
    model = fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *changes)
    assert model.model.label_parametrization == side
    stop_at(3, tiny_data, tmp_path / "cut", *changes)
    fit(tiny_data, tmp_path / "cut", resume=True)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@pytest.mark.parametrize("preset", ["decaf", "eclare"])
def test_the_presets_learn(tiny_data, tmp_path, preset):
    model = fit(tiny_data, tmp_path / "run", "train.epochs=12", preset=preset)
    lines = (tmp_path / "run" / "steps.jsonl").read_text().splitlines()
    losses = np.array([json.loads(line)["loss"] for line in lines])
    twelfth = len(losses) // 12
    assert losses[-twelfth:].mean() < 0.9 * losses[:twelfth].mean()
    assert evaluate(model, tiny_data)["classifier"].values["P@1"] > 35  # of 40 labels


def test_neighbours_are_the_heaviest_with_the_label_first(tiny_data):
    y = tiny_data["train"].filtered_targets()
    rows, weights = strongest_neighbours(y, 4)
    graph = label_targets(y, np.arange(40), GraphOptions(), lambda *_: None)[0].toarray()
    np.testing.assert_array_equal(rows[:, 0], np.arange(40))
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    for row in range(40):
        others = np.delete(graph[row], row)
        expected = np.sort(others[others > 0])[::-1][:3]
        kept = weights[row] > 0
        np.testing.assert_allclose(weights[row, kept][1:] / weights[row, 0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [("pool.scope=all",), ("pool.extra_positives=2",), ("model.heads=['dual']",),
     ("stage2={train = {frozen = true}, loss = {dual_share = 0.0}}",)],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused(changes):
    with pytest.raises(ConfigError, match=r"model\.label_parametrization must be free unless"):
        load_config(overrides=["model.label_parametrization=text", *changes])
