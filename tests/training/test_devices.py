"""A step away from the CPU, without a GPU: torch's meta device has shapes and no numbers.

Whatever wants a number from a tensor fails there, and so does most of what mixes devices. On a GPU
the first would make the host wait for the device, the second is an error.
"""

import numpy as np
import pytest
import torch
from small_runs import SETTINGS

from umpteen.config.loading import load_config
from umpteen.data.pool import AllLabels, Pool
from umpteen.data.pool_on_device import DevicePoolBuilder
from umpteen.training import row_optimizer
from umpteen.training.batch import Batch
from umpteen.training.batch_on_device import DeviceBatchMaker
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.prepare import prepare, training_splits
from umpteen.training.resolve import resolve_open_settings
from umpteen.types import Positives, Ragged

CPU_AUTOCAST = torch.autocast

VARIANTS = {
    "texts in chunks": ("data.max_tokens=4", "data.chunks=3"),
    "texts in chunks, transformer": (
        "encoder.name=TINY_BERT",
        "data.max_tokens=5",
        "data.chunks=3",
    ),
    "bag": [],
    "convolution": ["encoder.name=convolution"],
    "transformer": ["encoder.name=TINY_BERT", "model.learn_temperatures=true"],
    "drawn positives": ["loss.reduction=pol", "loss.bce=0.1", "pool.extra_positives=2"],
    "triplet and soft top-k": ["loss.dual=triplet", "loss.classifier=soft_top_k"],
    "capped": ["pool.max_labels=9", "model.label_dropout=0.1", "loss.dual=softmax"],
    "all labels": ["pool.scope=all", "encoder.name=TINY_BERT", "loss.bce=0.1"],
    "bank": ["pool.scope=bank", "encoder.name=TINY_BERT"],
    "label rows": ["augment.method=gandalf"],
    "mixed queries": ["augment.method=mixup"],
    "mixed with labels": ["augment.method=label-mixup", "model.heads=['classifier']"],
    "labels with texts": ["model.label_parametrization=text"],
    "labels with neighbours": ["model.label_parametrization=graph"],
    "all labels, soft top-k": ["pool.scope=all", "loss.dual=soft_top_k", "loss.reduction=pol"],
}


class MetaAutocast(CPU_AUTOCAST):
    """Autocast knows no meta device."""

    def __init__(self, device_type, **options):
        super().__init__("cpu" if device_type == "meta" else device_type, **options)


def on_meta(pool):
    pairs = pool.positives
    arrays = (pool.labels, pairs.rows, pairs.cols, pairs.targets, pool.ignored)
    labels, *of_pairs, ignored = (array.to("meta") for array in arrays)
    text = None if pool.text is None else on_meta(pool.text)
    return Pool(labels, pool.n_text, Positives(*of_pairs), ignored, text)


def made_on_device(loop, settings, data):
    """A batch whose arrays were made on the device, moved to where there are no numbers."""
    train = data.train
    pools = DevicePoolBuilder(
        train.filtered_targets(),
        train.filters,
        torch.device("cpu"),
        positives_per_query=settings.pool.positives,
        negatives_per_query=settings.pool.negatives,
        max_labels=settings.pool.max_labels,
        extra_positives=settings.pool.extra_positives,
    )
    parts = data.queries, data.labels, pools, torch.device("cpu")
    everything = AllLabels(train.filtered_targets(), train.filters)
    maker = DeviceBatchMaker(*parts, seed=1, encode_labels=True, everything=everything)
    maker.negatives = np.random.default_rng(1).integers(
        -1, len(data.labels), (len(data.queries), 4)
    )
    batch = maker.make(loop.batch_rows()[0], 0)
    tokens = Ragged(batch.tokens.ids.to("meta"), batch.tokens.offsets)
    on_host = batch.label_rows, batch.everything
    return Batch(batch.queries, tokens, on_meta(batch.pool), None, *on_host)


ON_HOST = {"pool.scope=all", "model.label_parametrization=graph"}
"""Nothing is drawn against all labels; texts of neighbours are gathered on the host."""
MADE_THERE = [name for name, changes in VARIANTS.items() if not ON_HOST.intersection(changes)]


@pytest.mark.parametrize(
    ("name", "made_there"),
    [*((name, False) for name in VARIANTS), *((name, True) for name in MADE_THERE)],
)
def test_a_step_needs_no_number_from_the_device(
    name, made_there, tiny_data, tiny_bert, tmp_path, monkeypatch
):
    changes = [change.replace("TINY_BERT", str(tiny_bert)) for change in VARIANTS[name]]
    settings = resolve_open_settings(load_config(overrides=[*SETTINGS, *changes]))
    dataset = training_splits(tiny_data, settings)
    model, tokenizer = build_untrained_model(settings, dataset)
    data = prepare(dataset, settings, tokenizer, cache=tmp_path, log=lambda text: None)
    graph = getattr(model, "graph_rows", None)  # read once, when batches begin
    model = model.to("meta").train()
    if graph is not None:
        model.graph_rows = graph
    loop = build_loop(
        settings, data, model, keep_refresh=lambda refreshed, epoch: None, precision="fp32"
    )
    batch = loop.maker.make(loop.batch_rows()[0], 0)
    if made_there:
        batch = made_on_device(loop, settings, data)
    monkeypatch.setattr(torch, "autocast", MetaAutocast)
    monkeypatch.setattr(row_optimizer, "_may_wait", lambda gradient: False)

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
