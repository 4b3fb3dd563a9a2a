import math

import pytest
import torch

from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.model import Model
from umpteen.training.optim import Optimizers, schedule
from umpteen.types import Ragged

RATES = {"lr_encoder": 1e-3, "lr_heads": 2e-3, "lr_labels": 3e-3, "weight_decay": 0.1}


def make_model(**options):
    torch.manual_seed(0)
    encoder = BagEncoder(torch.randn(9, 4), hidden=6)
    settings = {"heads": ("dual", "classifier"), "dim": 3, "n_labels": 5, **options}
    return Model(encoder, **settings)


def rates_of(model, optimizers):
    """Parameter name to (rate, decay, row-wise)."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        names[id(p)]: (group["lr"], group["weight_decay"], optimizer is optimizers.rows)
        for optimizer in optimizers.all
        for group in optimizer.param_groups
        for p in group["params"]
    }


def test_every_trained_parameter_is_in_one_group_with_its_rate_and_decay():
    model = make_model(learn_temperatures=True)
    found = rates_of(model, Optimizers(model, **RATES))
    assert found == {
        "encoder.table": (1e-3, 0.1, True),
        "encoder.weights": (1e-3, 0.0, True),
        "label_vectors": (3e-3, 0.1, True),
        "encoder.inner.weight": (1e-3, 0.1, False),
        "encoder.outer.weight": (1e-3, 0.1, False),
        "encoder.inner.bias": (1e-3, 0.0, False),
        "encoder.outer.bias": (1e-3, 0.0, False),
        "dual_head.linear.weight": (2e-3, 0.1, False),
        "dual_head.linear.bias": (2e-3, 0.0, False),
        "classifier_head.linear.weight": (2e-3, 0.1, False),
        "classifier_head.linear.bias": (2e-3, 0.0, False),
        "log_scales": (2e-3, 0.0, False),
    }


def test_fixed_temperatures_are_not_trained():
    model = make_model()
    assert "log_scales" not in rates_of(model, Optimizers(model, **RATES))


def give_gradients(model, scale=1.0):
    tokens = Ragged(torch.tensor([1, 2, 3]).numpy(), torch.tensor([0, 2, 3]).numpy())
    encoded = model.encode(tokens)
    labels = model.label_rows(torch.tensor([0, 4]))
    loss = model.dual(encoded).sum() + (model.classifier(encoded) @ labels.T).sum()
    (loss * scale).backward()


def test_a_step_scales_every_rate_by_the_factor_and_drops_the_gradients():
    model = make_model(learn_temperatures=True)
    optimizers = Optimizers(model, **RATES)
    give_gradients(model)
    optimizers.step(0.5, clip_norm=0.0)
    assert rates_of(model, optimizers)["label_vectors"][0] == 1.5e-3
    assert all(p.grad is None for p in model.parameters())
    give_gradients(model)
    optimizers.step(0.25, clip_norm=0.0)  # of the base rate, not of the last one
    assert rates_of(model, optimizers)["dual_head.linear.bias"][0] == pytest.approx(5e-4)


def test_a_factor_of_zero_moves_nothing():
    model = make_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    optimizers = Optimizers(model, **RATES)
    give_gradients(model)
    optimizers.step(0.0, clip_norm=0.0)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_clipping_bounds_the_dense_gradient():
    seen = {}
    for clip in (0.0, 1.0):
        model = make_model().eval()
        optimizers = Optimizers(model, **RATES)

        def remember(optimizer, *_, clip=clip):
            gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
            seen[clip] = math.sqrt(sum(float(g.norm()) ** 2 for g in gradients if g is not None))

        optimizers.dense.register_step_pre_hook(remember)
        give_gradients(model, scale=100.0)
        optimizers.step(1.0, clip_norm=clip)
    assert seen[0.0] > 10
    assert seen[1.0] == pytest.approx(1.0, rel=1e-4)


def test_the_schedule_rises_in_a_line_and_falls_in_a_cosine():
    assert schedule(0.0, 0.1) == 0.0
    assert schedule(0.1, 0.1) == 1.0
    assert schedule(1.0, 0.1) == pytest.approx(0.0)
    assert schedule(1.5, 0.1) == pytest.approx(0.0)
    values = [schedule(i / 100, 0.1) for i in range(101)]
    assert values[:11] == sorted(values[:11])
    assert values[10:] == sorted(values[10:], reverse=True)


def test_the_schedule_may_fall_in_a_line():
    assert schedule(0.05, 0.1, "linear") == schedule(0.05, 0.1)
    for progress in (0.1, 0.3, 0.6, 1.0):
        assert schedule(progress, 0.1, "linear") == pytest.approx((1 - progress) / 0.9)
    assert schedule(1.5, 0.1, "linear") == 0.0


def test_the_schedule_may_have_no_rise_or_nothing_else():
    assert schedule(0.0, 0.0) == 1.0
    assert schedule(0.5, 1.0) == 0.5
    assert schedule(1.0, 1.0) == 1.0
