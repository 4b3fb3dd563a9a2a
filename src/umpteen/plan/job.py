"""What a plan is about: data, model and settings as plain numbers, each checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from umpteen.errors import ConfigError
from umpteen.plan.encoders import EncoderShape

if TYPE_CHECKING:
    from umpteen.config.schema import RunConfig


LARGEST = 10**15
"""Of every number; formulas with larger ones exceed floating point."""


@dataclass(frozen=True)
class Job:
    """A run, as far as its memory and time depend on it."""

    labels: int
    queries: int
    encoder: EncoderShape
    dim: int = 256
    """Of each head's vectors."""
    gpus: int = 1
    """Ranks; labels and queries are shared out among them."""
    tokens: float = 12.0
    """Of a text, on average."""
    label_tokens: float = 0.0
    """Of a label's text, on average; 0 for as many as a text. For what ranks exchange alone."""
    vocabulary: tuple[float, float] = (5.0, 0.6)
    """Heaps' law, a and b: T tokens of a batch hold about a T^b different ones. For what ranks
    exchange alone; these numbers are near those of MDN-SeeAlso."""
    positives: float = 5.0
    """Labels of a query, on average."""
    dual: bool = True
    classifier: bool = True
    scope: str = "batch"
    """``batch``, ``all`` or ``bank``, as ``pool.scope``."""
    batch: int = 512
    drawn: int = 9
    """Positives and hard negatives drawn for each query."""
    max_labels: int = 0
    min_labels: int = 0
    mined: int = 30
    """Hard negatives kept of each query between refreshes."""
    clustered: bool = True
    refresh_epochs: int = 5
    epochs: int = 20
    frozen: bool = False
    chunk_tokens: int = 32768
    block_bytes: int = 512 << 20
    label_storage: str = "fp32"
    label_moments: str = "fp32"
    label_device: str = "device"
    alone: bool = False
    """Whether training refuses several devices with these settings."""
    movable: bool = True
    """Whether training can keep the label vectors on the host."""
    bf16: bool = True
    """Whether the encoder computes in bfloat16."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _ABOVE_ZERO and not value > 0:
                raise ConfigError(f"--{field.name} must be above 0, not {value}")
            if field.name in _ABOVE_ZERO and value > LARGEST:
                raise ConfigError(f"--{field.name} must be at most {LARGEST:,}")
        if self.positives > self.labels:
            raise ConfigError(
                f"--positives is {self.positives:g}, more labels of a query than --labels "
                f"{self.labels}; give the average number of labels of a query"
            )


_ABOVE_ZERO = ("labels", "queries", "dim", "gpus", "tokens", "positives", "batch", "epochs")


def job_of(
    settings: RunConfig,
    shape: EncoderShape,
    *,
    dim: int | None = None,
    is_gpu: bool = False,
    **numbers: Any,
) -> Job:
    """Return the job of a run's settings.

    Args:
        settings: Of the run.
        shape: Its encoder's sizes.
        dim: Size of vectors, where it is not that of the settings.
        is_gpu: Whether it runs on GPUs.
        **numbers: Labels, queries, tokens, positives and gpus.
    """
    pool, batches, train = settings.pool, settings.batches, settings.train
    return Job(
        encoder=shape,
        **numbers,
        dim=settings.model.dim if dim is None else dim,
        dual="dual" in settings.model.heads,
        classifier="classifier" in settings.model.heads,
        scope=pool.scope,
        batch=batches.size,
        drawn=pool.positives + pool.negatives + pool.extra_positives,
        max_labels=pool.max_labels,
        min_labels=pool.min_labels,
        mined=settings.mined_labels,
        clustered=batches.clustered,
        refresh_epochs=batches.refresh_epochs,
        epochs=train.epochs,
        frozen=train.frozen,
        chunk_tokens=pool.chunk_tokens,
        block_bytes=(pool.memory_mib or (1536 if is_gpu else 512)) << 20,
        label_storage=train.label_storage,
        label_moments=train.label_moments,
        label_device=train.label_device,
        movable=settings.model.label_parametrization == "free",
        bf16=train.precision == "bf16" or (train.precision == "auto" and is_gpu),
    )
