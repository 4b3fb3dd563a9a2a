"""Training on batches that were made on a device: the same losses, and no waiting for a GPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SETTINGS
from torch.utils._python_dispatch import TorchDispatchMode

import umpteen
from umpteen.compute.dropout import Dropout
from umpteen.config.loading import load_config
from umpteen.data.pool import Pool
from umpteen.data.pool_on_device import DevicePoolBuilder
from umpteen.training.batch import Batch, BatchMaker
from umpteen.training.batch_on_device import DeviceBatchMaker
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.factories import build_losses
from umpteen.training.prepare import prepare, training_splits
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.step import batch_loss
from umpteen.types import Positives, Ragged

PRESETS = Path(umpteen.__file__).parent / "presets"
CHANGES = ("pool.positives=1", "pool.extra_positives=2", "loss.bce=0.1")


def prepared(data, folder, *changes, preset="unidec-frugal", device="cpu", precision="fp32"):
    settings = resolve_open_settings(load_config(preset, overrides=[*SETTINGS, *changes]))
    dataset = training_splits(data, settings)
    model, tokenizer = build_untrained_model(settings, dataset)
    ready = prepare(dataset, settings, tokenizer, cache=folder, log=lambda text: None)
    loop = build_loop(
        settings,
        ready,
        model.to(device),
        keep_refresh=lambda refreshed, epoch: None,
        precision=precision,
    )
    return settings, ready, loop


def device_maker(settings, data, device="cpu", layout=None):
    train = data.dataset["train"]
    pools = DevicePoolBuilder(
        train.filtered_targets(),
        train.filters,
        torch.device(device),
        positives_per_query=settings.pool.positives,
        negatives_per_query=settings.pool.negatives,
        extra_positives=settings.pool.extra_positives,
    )
    place = torch.device(device)
    return DeviceBatchMaker(
        data.queries, data.labels, pools, place, seed=5, encode_labels=True, layout=layout
    )


def host_copy(batch):
    pool, pairs = batch.pool, batch.pool.positives
    arrays = (pool.labels, pairs.rows, pairs.cols, pairs.targets, pool.ignored)
    labels, *of_pairs, ignored = (array.cpu().numpy() for array in arrays)
    tokens = Ragged(torch.as_tensor(batch.tokens.ids).cpu().numpy(), batch.tokens.offsets)
    return Batch(batch.queries, tokens, Pool(labels, pool.n_text, Positives(*of_pairs), ignored))


@pytest.mark.parametrize("kind", ["bag", "convolution", "transformer"])
def test_a_batch_on_the_device_has_the_loss_of_the_same_batch_on_the_host(
    kind, tiny_data, tiny_bert, tmp_path
):
    name = tiny_bert if kind == "transformer" else kind
    settings, data, loop = prepared(tiny_data, tmp_path, *CHANGES, f"encoder.name={name}")
    maker = device_maker(settings, data, layout=getattr(loop.model.encoder, "layout", None))
    maker.negatives = np.random.default_rng(0).integers(-1, 40, (len(data.queries), 6))
    batch = maker.make(np.arange(0, len(data.queries), 2), step=3)
    assert batch.pool.n_text < len(batch.pool.labels)
    assert (batch.tokens.layout is not None) == (kind == "transformer")
    model = loop.model.double().eval()
    losses = build_losses(settings.loss)
    found, expected = (
        batch_loss(model, some, losses, precision="fp32") for some in (batch, host_copy(batch))
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("asked", ["auto", "float8", "clusters"])
def test_the_search_for_hard_negatives_is_a_setting(asked, tiny_data, tmp_path):
    _, _, loop = prepared(tiny_data, tmp_path, f"batches.search={asked}")
    assert loop.refresh.search == asked


def test_a_run_on_a_cpu_makes_its_batches_with_numpy(tiny_data, tmp_path):
    _, _, loop = prepared(tiny_data, tmp_path)
    assert isinstance(loop.maker, BatchMaker)


def test_a_loop_learns_from_batches_made_on_the_device_and_repeats_itself(tiny_data, tmp_path):
    curves = []
    for _ in range(2):
        changes = ("train.epochs=20", "batches.clustered=false", "pool.negatives=0")
        settings, data, loop = prepared(tiny_data, tmp_path, *changes)
        loop.maker = device_maker(settings, data)
        curves.append([info.loss for tick in loop.ticks() for info in tick.finished])
    assert curves[0] == curves[1]
    assert np.mean(curves[0][-3:]) < 0.8 * np.mean(curves[0][:3])


ASKS = {"_local_scalar_dense", "equal", "masked_select", "nonzero", "unique_dim", "_unique2"}
ASKS |= {"unique_consecutive"}


class Asking(TorchDispatchMode):
    """Notes every operation whose result the host must know: on a GPU it would wait for it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function._schema.name.removeprefix("aten::"), kwargs or {}
        masks = name in ("index", "index_put", "index_put_") and any(
            part is not None and part.dtype == torch.bool for part in args[1]
        )
        repeats = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in ASKS or masks or repeats:
            self.seen.append(name)
        return function(*args, **kwargs)


@pytest.mark.parametrize("preset", sorted(p.stem for p in PRESETS.glob("*.toml")))
def test_no_loss_asks_the_device_for_a_number(preset, tiny_data, tiny_bert, tmp_path, monkeypatch):
    """The other half of the test for GPUs below, which takes a few of them."""
    # On a CPU dropout draws by NumPy from a seed that it asks for; GPUs take torch's.
    monkeypatch.setattr(Dropout, "forward", lambda self, x: torch.dropout(x, self.p, self.training))
    changes = [] if "frugal" in preset else [f"encoder.name={tiny_bert}"]
    settings, data, loop = prepared(tiny_data, tmp_path, *changes, preset=preset)
    loop.model.train()
    if settings.pool.scope == "batch":
        layout = getattr(loop.model.encoder, "layout", None)
        loop.maker = device_maker(settings, data, layout=layout)
    loop.maker.negatives = np.random.default_rng(0).integers(-1, 40, (loop.n_queries, 6))
    if loop.bank is not None:
        loop.refresh(loop.model, 0)
    batch = loop.maker.make(loop.batch_rows()[0], 0)
    with Asking() as asking:
        loop.loss_of(loop.model, batch, 3).backward()
        seen = list(asking.seen)
        float(torch.ones(()))
    assert seen == []
    assert asking.seen == ["_local_scalar_dense"]  # it would have been noticed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnGpu:
    """Set torch to fail wherever the host would wait for the device."""

    @pytest.mark.parametrize("precision", ["bf16", "fp32"])
    @pytest.mark.parametrize(
        ("preset", "changes"),
        [
            ("unidec", ["train.clip_norm=1.0", "loss.bce=0.1"]),
            ("unidec", ["pool.extra_positives=2", "pool.max_labels=9"]),
            ("unidec-frugal", []),
            ("depsl", ["model.learn_temperatures=true"]),
            ("supcon-de", ["loss.reduction=pol"]),
            ("renee", []),
            ("dexml", []),
            ("unidec", ["train.label_storage=bf16", "train.label_moments=int8"]),
        ],
    )
    def test_a_training_step_does_not_wait(
        self, preset, changes, precision, tiny_data, tiny_bert, tmp_path
    ):
        if "frugal" not in preset:
            changes = [*changes, f"encoder.name={tiny_bert}"]
        _, _, loop = prepared(
            tiny_data, tmp_path, *changes, preset=preset, device="cuda", precision=precision
        )
        assert isinstance(loop.maker, DeviceBatchMaker)
        loop.model.train()
        mined = np.random.default_rng(0).integers(-1, 40, (loop.n_queries, 6)).astype(np.int32)
        loop.maker.negatives = mined
        plan = loop.batch_rows()
        # The switch is for all threads, so batches are made before it is thrown.
        batches = [loop.maker.make(plan[i % len(plan)], i) for i in range(6)]
        for batch in batches[:3]:  # what is compiled or chosen on first use
            loop._step(batch, 1.0)
            loop.position.step += 1
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches[3:]:
                loop._step(batch, 0.5)
                loop.position.step += 1
                loop.watch.arrived()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        losses = [info.loss for info in loop.watch.drain()]
        assert np.isfinite(losses).all()

    def test_waiting_is_noticed_here(self):
        """The test above can fail."""
        values = torch.ones(3, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            with pytest.raises(RuntimeError):
                values.nonzero()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_batches_made_beside_training_equal_those_made_alone(self, tiny_data, tmp_path):
        _, _, loop = prepared(tiny_data, tmp_path, device="cuda")
        maker = loop.maker
        maker.negatives = np.random.default_rng(0).integers(-1, 40, (loop.n_queries, 6))
        plan = loop.batch_rows() * 20
        alone = [host_copy(maker.make(rows, step)) for step, rows in enumerate(plan)]
        busy = torch.randn(4096, 4096, device="cuda")
        for batch, expected in zip(
            maker.make_ahead(plan, start=0, first_step=0), alone, strict=True
        ):
            busy = busy @ busy / 64  # large work, which small work must not overtake wrongly
            found = host_copy(batch)
            assert np.array_equal(found.pool.labels, expected.pool.labels)
            assert np.array_equal(found.tokens.ids, expected.tokens.ids)
            assert np.array_equal(found.pool.positives.cols, expected.pool.positives.cols)
