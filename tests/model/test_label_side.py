"""Label vectors with a part from texts or neighbours: against dense expressions, and whole runs."""

import json

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, fit, outcome, stop_at
from torch.nn.functional import normalize

from umpteen.config.loading import load_config
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.walks import visited_neighbours
from umpteen.errors import ConfigError
from umpteen.evaluation import evaluate
from umpteen.model.vectors import label_search_vectors
from umpteen.training import prepare
from umpteen.training.batch import with_neighbours
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.factories import build_losses
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
    encoded = model.encode(found.labels.take(np.arange(40)))
    texts = model.classifier(encoded) + model.label_vectors
    if model.label_parametrization == "text":
        return texts
    graph = torch.zeros(40, 40)
    for row in range(40):
        for near, weight in zip(model.graph_rows[row], model.graph_weights[row], strict=True):
            graph[row, int(near)] += weight
    return texts + model.classifier(graph @ encoded)


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


def test_texts_of_neighbours_are_encoded_once_and_found_again():
    graph = np.array([[0, 3], [1, 0], [2, 5], [3, 4], [4, 3], [5, 2]])
    rows, near = with_neighbours(np.array([0, 3, 4]), graph)
    assert rows.tolist() == [0, 3, 4]  # all neighbours are in the pool
    np.testing.assert_array_equal(rows[near], graph[[0, 3, 4]])
    rows, near = with_neighbours(np.array([1, 2, 5]), graph)
    assert rows.tolist() == [1, 2, 5, 0]
    np.testing.assert_array_equal(rows[near], graph[[1, 2, 5]])


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
    model = fit(tiny_data, tmp_path / "run", "train.epochs=40", preset=preset)
    lines = (tmp_path / "run" / "steps.jsonl").read_text().splitlines()
    losses = np.array([json.loads(line)["loss"] for line in lines])
    fortieth = len(losses) // 40
    assert losses[-fortieth:].mean() < 0.5 * losses[:fortieth].mean()
    assert evaluate(model, tiny_data)["classifier"].values["P@1"] > 35  # of 40 labels


def test_a_graph_has_the_walks_of_the_training_texts_alone(tiny_data, tmp_path):
    config, _, model = parts(tiny_data, tmp_path, "graph", "augment.walk_steps=50")
    y = prepare.training_splits(tiny_data, config)["train"].filtered_targets()
    rows, weights = visited_neighbours(y, 3, GraphOptions(walk_steps=50, seed=config.seed))
    np.testing.assert_array_equal(model.graph_rows.numpy(), rows)
    np.testing.assert_array_equal(model.graph_weights.numpy(), weights)


@pytest.mark.parametrize(
    "changes",
    [("pool.scope=all",), ("pool.extra_positives=2",), ("model.heads=['dual']",),
     ("stage2={train = {frozen = true}, loss = {dual_share = 0.0}}",)],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused(changes):
    with pytest.raises(ConfigError, match=r"model\.label_parametrization must be free unless"):
        load_config(overrides=["model.label_parametrization=text", *changes])
