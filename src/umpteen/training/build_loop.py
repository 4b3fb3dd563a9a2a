"""The parts of a run, made from its settings: a new model, and the loop around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.compute.precision import require_eight_bits
from umpteen.config.schema import RunConfig
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.walks import visited_neighbours
from umpteen.data.dataset import Dataset
from umpteen.data.pool import AllLabels, PoolBuilder
from umpteen.data.pool_on_device import DevicePoolBuilder
from umpteen.data.samplers import grown_cluster_size, step_seed
from umpteen.errors import ConfigError
from umpteen.model.model import Model
from umpteen.training.all_labels import AllLabelLoss
from umpteen.training.bank_loss import BankLoss
from umpteen.training.batch import Batch, BatchMaker
from umpteen.training.batch_on_device import DeviceBatchMaker, fits_device
from umpteen.training.data_parallel import refresh_on_ranks
from umpteen.training.embedding_bank import EmbeddingBank
from umpteen.training.factories import build_encoder, build_losses, build_model, in_chunks
from umpteen.training.frozen import FrozenLoss, freeze_
from umpteen.training.host_table import HostTable
from umpteen.training.loop import Loop
from umpteen.training.mixup import KINDS, Mixing
from umpteen.training.optim import Optimizers
from umpteen.training.pool_on_ranks import PoolLossOnRanks
from umpteen.training.prepare import Prepared, all_texts
from umpteen.training.refresh import Refreshed, Refresher
from umpteen.training.stage_log import QUIET, StageLog
from umpteen.training.step import batch_loss

BuildModel = Callable[[RunConfig, Dataset], tuple[Model, Any]]


def build_untrained_model(settings: RunConfig, dataset: Dataset) -> tuple[Model, Any]:
    """Return an untrained model and its tokenizer; a pure function of settings and texts.

    Args:
        settings: The run's settings, with open ones filled in.
        dataset: From ``training_splits``.

    Returns:
        The model on the CPU, and a ``tokenizers.Tokenizer``.

    Raises:
        ConfigError: If a setting does not fit the encoder.
    """
    generator = torch.Generator().manual_seed(step_seed(settings.seed, 0, (5,)))
    texts = all_texts(dataset, settings.data.text)
    # Layers draw their first weights from torch's own generator: seeded, then given back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(settings.seed, 0, (6,)))
        encoder, tokenizer = build_encoder(settings.encoder, texts, generator=generator)
        _require_room(encoder, settings)
        encoder = in_chunks(encoder, tokenizer, settings.data)
        model = build_model(settings, encoder, len(dataset.labels))
    set_label_graph_(model, dataset, settings)
    return model, tokenizer


def set_label_graph_(model: Model, dataset: Dataset, settings: RunConfig) -> None:
    """Give a model its label graph, where it has one: random walks on the training data."""
    if model.neighbours:
        options = GraphOptions(
            walk_steps=settings.augment.walk_steps,
            restart=settings.augment.restart,
            seed=settings.seed,
        )
        targets = dataset["train"].filtered_targets()
        rows, weights = visited_neighbours(targets, model.neighbours, options)
        model.set_graph_(torch.from_numpy(rows), torch.from_numpy(weights))


def _require_room(encoder: Any, settings: RunConfig) -> None:
    most = getattr(encoder, "max_positions", None)
    if most is not None and settings.data.max_tokens > most:
        raise ConfigError(
            f"data.max_tokens is {settings.data.max_tokens}, but encoder "
            f"{settings.encoder.name!r} has positions for {most}; give at most {most}"
        )


def build_loop(
    settings: RunConfig,
    data: Prepared,
    model: Model,
    *,
    keep_refresh: Callable[[Refreshed, int], None],
    precision: str,
    first_epoch: int = 0,
    ranks: Ranks = ONE_RANK,
    log: StageLog = QUIET,
) -> Loop:
    """Return the training loop at its beginning."""
    s = settings
    if s.batches.search == "float8":
        require_eight_bits(next(model.parameters()).device, "batches.search=float8")
    if s.train.frozen:
        freeze_(model)
    targets = data.train.filtered_targets()
    bank = EmbeddingBank() if s.pool.scope == "bank" else None
    refresher = build_refresher(s, data, targets, precision, first_epoch, bank, ranks, log)
    optimizers = _optimizers(s, model, ranks)
    host = None
    if s.train.label_device == "host" and optimizers.rows is not None:
        host = HostTable(model, optimizers.rows)
    return Loop(
        model=model,
        optimizers=optimizers,
        loss_of=_loss_of(s, data, precision, bank, ranks, optimizers),
        maker=_maker(s, data, model, targets, ranks),
        refresh=None if refresher is None else refresh_on_ranks(refresher, ranks, bank, log),
        keep_refresh=keep_refresh,
        n_queries=len(data.queries),
        batch_size=s.batches.size,
        first_epoch=first_epoch,
        n_epochs=first_epoch + s.train.epochs,
        max_steps=s.train.max_steps,
        refresh_epochs=s.batches.refresh_epochs,
        first_refresh=s.batches.first_refresh,
        clustered=s.batches.clustered,
        cluster_size=_cluster_size(s, first_epoch),
        warmup=s.train.warmup,
        fall=s.train.schedule,
        clip_norm=s.train.clip_norm,
        seed=s.seed,
        bank=bank,
        host=host,
        ranks=ranks,
    )


def _optimizers(s: RunConfig, model: Model, ranks: Ranks) -> Optimizers:
    assert s.train.lr_encoder is not None
    assert s.train.lr_heads is not None
    return Optimizers(
        model,
        lr_encoder=s.train.lr_encoder,
        lr_heads=s.train.lr_heads,
        lr_labels=s.train.lr_labels,
        weight_decay=s.train.weight_decay,
        label_optimizer=s.train.label_optimizer,
        label_weight_decay=s.train.label_weight_decay,
        batch_size=s.batches.size,
        label_moments=s.train.label_moments,
        seed=s.seed,
        first_label=ranks.shard(model.n_labels).start,
    )


def build_refresher(
    s: RunConfig,
    data: Prepared,
    targets: sp.csr_matrix,
    precision: str,
    first_epoch: int = 0,
    bank: EmbeddingBank | None = None,
    ranks: Ranks = ONE_RANK,
    log: StageLog = QUIET,
) -> Refresher | None:
    """Build what refreshes clusters, hard negatives and the bank; None where nothing is."""
    mined = s.mined_labels
    if not (s.batches.clustered or mined or bank is not None):
        return None
    return Refresher(
        data.queries,
        data.labels,
        targets,
        data.train.filters,
        cluster_size=_cluster_size(s, first_epoch),
        negatives_kept=mined,
        seed=s.seed,
        precision=precision,
        # On several ranks each encodes its own labels again, and nothing travels.
        tell_labels=None if bank is None or ranks.exchanges else bank.fill,
        search=s.batches.search,
        log=log,
        threads=s.train.threads or torch.get_num_threads(),
        ranks=ranks,
    )


def _cluster_size(s: RunConfig, first_epoch: int) -> Callable[[int], int]:
    part = s.batches
    start = part.cluster_size or part.size
    return lambda epoch: grown_cluster_size(
        epoch - first_epoch, start, part.double_epochs, part.size
    )


def _maker(
    s: RunConfig, data: Prepared, model: Model, targets: sp.csr_matrix, ranks: Ranks
) -> BatchMaker | DeviceBatchMaker:
    """Build the batch maker; on a GPU batches are made there.

    Ranks, mixed queries, huge targets and texts of neighbours need the host.
    """
    device = next(model.parameters()).device
    mixing = None
    if s.augment.method in KINDS and not s.train.frozen:
        mixing = Mixing(s.augment.method, s.augment.alpha)
    filters = data.train.filters
    there = device.type == "cuda" and not ranks.exchanges and mixing is None
    there = there and fits_device(targets, filters) and not model.neighbours
    options = {
        "positives_per_query": s.pool.positives,
        "negatives_per_query": s.pool.negatives,
        "max_labels": s.pool.max_labels,
        "min_labels": s.pool.min_labels,
        "extra_positives": s.pool.extra_positives,
    }
    pools: Any
    if s.pool.scope == "all":
        pools = AllLabels(targets, filters)
    elif there:
        pools = DevicePoolBuilder(targets, filters, device, **options)
    else:
        pools = PoolBuilder(targets, filters, **options)
    encode = "dual" in model.heads and s.pool.scope != "all" and not s.train.frozen
    encode = encode or model.label_parametrization != "free"
    encode = encode or (mixing is not None and mixing.kind == "label-mixup")
    parts = (data.queries, data.labels, pools)
    everything = AllLabels(targets, filters) if s.pool.scope == "bank" else None
    if there:
        # A frozen encoder has seen the queries already.
        layout = None if s.train.frozen else getattr(model.encoder, "layout", None)
        return DeviceBatchMaker(
            *parts, device, seed=s.seed, encode_labels=encode, everything=everything, layout=layout
        )
    graph = None
    if model.neighbours:
        graph = model.get_buffer("graph_rows").cpu().numpy().astype(np.int64)
    return BatchMaker(
        *parts, seed=s.seed, encode_labels=encode, everything=everything, mixing=mixing, graph=graph
    )


def _loss_of(
    s: RunConfig,
    data: Prepared,
    precision: str,
    bank: EmbeddingBank | None,
    ranks: Ranks,
    optimizers: Optimizers,
) -> Callable[[Model, Batch, int], torch.Tensor]:
    losses = build_losses(s.loss)
    if s.train.frozen:
        return FrozenLoss(losses, data.queries, precision, ranks)
    scores = None if s.pool.scores == "auto" else s.pool.scores
    if s.pool.scope == "all":
        return AllLabelLoss(
            losses,
            data.labels,
            precision,
            chunk_tokens=s.pool.chunk_tokens,
            memory_bytes=s.pool.memory_mib << 20 or None,
            ranks=ranks,
            scores=scores,
            label_updates=optimizers.update_labels,
        )
    if bank is not None:
        return BankLoss(
            losses,
            data.labels,
            bank,
            precision,
            memory_bytes=s.pool.memory_mib << 20 or None,
            ranks=ranks,
            scores=scores,
        )
    if ranks.exchanges:
        return PoolLossOnRanks(losses, precision, ranks)
    return lambda model, batch, seed: batch_loss(model, batch, losses, precision=precision)
