"""A step away from the CPU, without a GPU: torch's meta device has shapes and no numbers.

Whatever wants a number from a tensor fails there, and so does most of what mixes devices. On a GPU
the first would make the host wait for the device, the second is an error.
"""

import pytest
import torch
from small_runs import SETTINGS

from umpteen.build import load_config, resolve_open_settings
from umpteen.training import row_adamw
from umpteen.training.parts import new_loop, new_model
from umpteen.training.prepare import prepare, training_splits

CPU_AUTOCAST = torch.autocast

VARIANTS = {
    "bag": [],
    "convolution": ["encoder.name=convolution"],
    "transformer": ["encoder.name=TINY_BERT", "model.learn_temperatures=true"],
    "drawn positives": ["loss.reduction=pol", "loss.bce=0.1", "pool.extra_positives=2"],
    "triplet and soft top-k": ["loss.dual=triplet", "loss.classifier=soft_top_k"],
    "capped": ["pool.most_labels=9", "model.label_dropout=0.1", "loss.dual=softmax"],
    "all labels": ["pool.scope=all", "encoder.name=TINY_BERT", "loss.bce=0.1"],
    "bank": ["pool.scope=bank", "encoder.name=TINY_BERT"],
    "all labels, soft top-k": ["pool.scope=all", "loss.dual=soft_top_k", "loss.reduction=pol"],
}


class MetaAutocast(CPU_AUTOCAST):
    """Autocast knows no meta device."""

    def __init__(self, device_type, **options):
        super().__init__("cpu" if device_type == "meta" else device_type, **options)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_step_needs_no_number_from_the_device(
    changes, tiny_data, tiny_bert, tmp_path, monkeypatch
):
    changes = [change.replace("TINY_BERT", str(tiny_bert)) for change in changes]
    settings = resolve_open_settings(load_config(overrides=[*SETTINGS, *changes]))
    dataset = training_splits(tiny_data, settings)
    model, tokenizer = new_model(settings, dataset)
    data = prepare(dataset, settings, tokenizer, cache=tmp_path, say=lambda text: None)
    model = model.to("meta").train()
    loop = new_loop(
        settings, data, model, keep_refresh=lambda refreshed, epoch: None, precision="fp32"
    )
    batch = loop.maker.make(loop.plan()[0], 0)
    monkeypatch.setattr(torch, "autocast", MetaAutocast)
    monkeypatch.setattr(row_adamw, "_may_wait", lambda gradient: False)

    loss = loop.loss_of(model, batch, 1)
    loss.backward()
    assert loss.device.type == "meta"
    gradients = {n: p.grad.device.type for n, p in model.named_parameters() if p.grad is not None}
    assert len(gradients) > 3
    assert set(gradients.values()) == {"meta"}, gradients
    if loop.optimizers.rows is not None:
        loop.optimizers.rows.step()


def test_what_wants_a_number_fails_here():
    """The tests above can fail."""
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(torch.ones(3, device="meta").all())
