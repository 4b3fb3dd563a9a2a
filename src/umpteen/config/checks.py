"""What settings may be: each by itself, as tables, and what must hold between them, as functions.

A new setting belongs into one of the tables; a new relation is a function in ``RELATIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Problem = tuple[str, Any, str]
"""A setting, its value, and what it must be."""

CHOICES = {
    "data.text": ("title", "all"),
    "augment.method": (
        "none",
        "gandalf",
        "self",
        "walks",
        "glas",
        "synonyms",
        "mixup",
        "label-mixup",
    ),  # fmt: skip
    "augment.rows": ("added", "only", "sampled"),
    "augment.order": ("random", "tail"),
    "encoder.pooling": ("auto", "mean", "first", "last"),
    "model.label_parametrization": ("free", "text", "graph"),
    "model.label_init": ("text", "zeros", "random", "odds"),
    "model.projection": ("linear", "none"),
    "pool.scope": ("batch", "all", "bank"),
    "pool.scores": ("auto", "fp32", "bf16"),
    "batches.search": ("auto", "exact", "clusters", "bfloat16", "float8"),
    "train.schedule": ("cosine", "linear"),
    "train.precision": ("auto", "fp32", "bf16"),
    "train.label_storage": ("fp32", "bf16"),
    "train.label_moments": ("fp32", "int8"),
    "train.label_optimizer": ("adamw", "adamw-dense", "sgd"),
    "train.label_device": ("device", "host"),
    "examples.kept": ("auto", "none"),
    "ensemble.enabled": ("auto", "off"),
    "rerank.kind": ("none", "features", "late-interaction", "cross-encoder"),
}
"""Settings that are one of a few words."""

MAX_RERANKED = 500
"""Labels of a text that re-ranking scores again, at most."""

MIXED = ("mixup", "label-mixup")
"""Augmentations that mix the vectors of a batch's queries."""

ABOVE_0 = (
    "data.max_tokens", "data.chunks", "encoder.dim", "encoder.vocabulary", "model.dim",
    "model.dual_temperature", "model.classifier_temperature", "model.neighbours",
    "pool.positives", "pool.chunk_tokens", "batches.size",
    "batches.refresh_epochs", "train.epochs", "validation.every_epochs", "augment.share",
    "augment.walk_steps", "augment.alpha", "examples.max_examples",
    "ensemble.max_texts", "ensemble.min_queries", "ensemble.seconds",
)  # fmt: skip
AT_LEAST_0 = (
    "seed", "pool.memory_mib", "pool.negatives", "pool.max_labels", "pool.min_labels",
    "pool.extra_positives", "pool.shortlist_size", "batches.cluster_size", "batches.first_refresh",
    "train.lr_labels", "train.weight_decay", "train.clip_norm", "train.max_steps", "train.threads",
    "train.checkpoint_seconds",
    "validation.max_queries", "validation.patience", "loss.bce", "augment.max_positives",
    "augment.max_queries",
)  # fmt: skip
NONE_OR_AT_LEAST_0 = (
    "train.lr_encoder", "train.lr_heads", "train.label_weight_decay", "ensemble.tail_boost",
)  # fmt: skip
FRACTIONS = (
    "loss.dual_share", "loss.dual_forward", "loss.classifier_forward", "train.warmup",
    "augment.share", "augment.restart", "augment.word_share",
)  # fmt: skip
BELOW_1 = ("model.dropout", "model.label_dropout", "validation.share")

RANGES: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (ABOVE_0, "above 0", lambda value: value > 0),
    (AT_LEAST_0, "0 or more", lambda value: value >= 0),
    (NONE_OR_AT_LEAST_0, "0 or more", lambda value: value is None or value >= 0),
    (FRACTIONS, "between 0 and 1", lambda value: 0 <= value <= 1),
    (BELOW_1, "at least 0 and below 1", lambda value: 0 <= value < 1),
    (("ensemble.folds",), "1 to 5", lambda value: 1 <= value <= 5),
    (
        ("model.classifier_dropout",),
        "at least 0 and below 1",
        lambda value: value is None or 0 <= value < 1,
    ),
)


def broken_rules(config: Any) -> list[str]:
    """Return a sentence for every rule that the settings of a run break."""
    found: list[Problem] = []
    for key, (*others, last) in CHOICES.items():
        if get(config, key) not in (*others, last):
            found.append((key, get(config, key), f"{', '.join(others)} or {last}"))
    for relation in RELATIONS:
        found += relation(config)
    for keys, rule, holds in RANGES:
        found += [(key, get(config, key), rule) for key in keys if not holds(get(config, key))]
    return [f"{key} must be {rule}, not {value!r}" for key, value, rule in found]


def get(config: Any, key: str) -> Any:
    """Return the value of a dotted key.

    Example:
        >>> from umpteen.config.schema import RunConfig
        >>> get(RunConfig(), "train.epochs")
        20
    """
    value = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _heads(c: Any) -> Iterable[Problem]:
    heads = list(c.model.heads)
    both = {"dual", "classifier"} <= set(heads)
    if not heads or not set(heads) <= {"dual", "classifier"}:
        yield "model.heads", heads, "some of dual and classifier"
    head = c.model.classifier_head
    if not (head == "linear" or (head == "dual" and both)):
        yield "model.classifier_head", head, "linear, or dual in a model with both heads"
    if not c.model.normalize and heads != ["dual"]:
        yield "model.normalize", False, "true unless model.heads is dual alone"
    if c.model.share_temperature and not both:
        yield "model.share_temperature", True, "false unless model.heads are both"
    if c.pool.scope == "bank" and "dual" not in heads:
        yield "model.heads", heads, "dual, for pool.scope bank"


def _frozen(c: Any) -> Iterable[Problem]:
    fits = "classifier" in c.model.heads and c.pool.scope == "batch"
    if c.train.frozen and not (fits and ("dual" not in c.model.heads or c.loss.dual_share == 0)):
        rule = "false unless there is a classifier, pool.scope is batch and loss.dual_share is 0"
        yield "train.frozen", c.train.frozen, rule


def _label_vectors(c: Any) -> Iterable[Problem]:
    classifier, side = "classifier" in c.model.heads, c.model.label_parametrization
    plain = c.pool.scope == "batch" and not c.pool.extra_positives and not c.train.frozen
    if side != "free" and not (plain and classifier):
        rule = (
            "free unless there is a classifier, pool.scope is batch, pool.extra_positives is 0 and "
            "nothing is frozen"
        )
        yield "model.label_parametrization", side, rule
    own = classifier and side == "free" and c.model.classifier_head == "linear"
    own = own and c.model.projection == "linear"
    if c.model.label_init == "odds" and not (own and c.pool.scope == "all"):
        rule = (
            "text, zeros or random unless there is a classifier with a linear head of its own, "
            "model.label_parametrization is free and pool.scope is all"
        )
        yield "model.label_init", "odds", rule
    free = classifier and side == "free" and c.pool.scope != "all"
    if c.train.label_device == "host" and not free:
        rule = (
            "device unless there is a classifier with model.label_parametrization free and "
            "pool.scope is not all"
        )
        yield "train.label_device", c.train.label_device, rule


def _cosines(c: Any) -> Iterable[Problem]:
    fits = "classifier" in c.model.heads and c.model.label_parametrization == "free"
    if c.model.normalize_classifier and not (fits and c.pool.scope != "all"):
        rule = (
            "false unless there is a classifier with model.label_parametrization free and "
            "pool.scope is not all"
        )
        yield "model.normalize_classifier", True, rule


def _label_optimizer(c: Any) -> Iterable[Problem]:
    plain = (c.train.label_storage, c.train.label_moments, c.train.label_device)
    fits = plain == ("fp32", "fp32", "device") and c.model.label_parametrization == "free"
    if c.train.label_optimizer != "adamw" and not fits:
        rule = (
            "adamw unless label vectors are free, in fp32 and on the device "
            "(train.label_storage, label_moments, label_device)"
        )
        yield "train.label_optimizer", c.train.label_optimizer, rule


def _max_steps(c: Any) -> Iterable[Problem]:
    if c.train.max_steps and c.stage2:
        yield "train.max_steps", c.train.max_steps, "0 in a run of two stages"


def _pool(c: Any) -> Iterable[Problem]:
    most, least = c.pool.max_labels, c.pool.min_labels
    if most and least > most:
        yield "pool.min_labels", least, f"at most pool.max_labels, {most}"
    kept, drawn = c.pool.shortlist_size, c.pool.negatives
    if kept and kept < drawn:
        yield "pool.shortlist_size", kept, f"0, or at least pool.negatives ({drawn})"
    if c.pool.scores != "auto" and c.pool.scope == "batch":
        yield "pool.scores", c.pool.scores, "auto unless pool.scope is all or bank"


def _propensity(c: Any) -> Iterable[Problem]:
    constants = (c.data.propensity_a, c.data.propensity_b)
    given = all(value is not None and 0 < value < 1000 for value in constants)
    if constants != (None, None) and not given:
        rule = "both left out, or both above 0 and below 1000"
        yield "data.propensity_a and data.propensity_b", constants, rule


def _augmentation(c: Any) -> Iterable[Problem]:
    delta, method = c.augment.delta, c.augment.method
    if delta is not None and not 0 <= delta < 1:
        yield "augment.delta", delta, "left out, or at least 0 and below 1"
    if method in MIXED and c.pool.scope != "batch":
        yield "augment.method", method, "another one unless pool.scope is batch"


def _doubling(c: Any) -> Iterable[Problem]:
    epochs = list(c.batches.double_epochs)
    whole = all(isinstance(epoch, int) and epoch >= 0 for epoch in epochs)
    if not whole or epochs != sorted(set(epochs)):
        yield "batches.double_epochs", epochs, "whole numbers of 0 or more that rise"
    if epochs and c.batches.cluster_size <= 0:
        rule = "1 or more where batches.double_epochs are given"
        yield "batches.cluster_size", c.batches.cluster_size, rule


def _rerank(c: Any) -> Iterable[Problem]:
    kind, most = c.rerank.kind, c.rerank.candidates
    if kind != "none" and c.ensemble.enabled == "off":
        yield "rerank.kind", kind, "none unless ensemble.enabled is auto"
    needs_one = kind in ("late-interaction", "cross-encoder")
    if needs_one and c.pair_encoder is None:
        rule = f"a transformer's folder or hub name for rerank.kind {kind} (or name --encoder)"
        yield "rerank.encoder", c.rerank.encoder, rule
    if c.rerank.encoder and not needs_one:
        rule = "empty unless rerank.kind is late-interaction or cross-encoder"
        yield "rerank.encoder", c.rerank.encoder, rule
    if not 2 <= most <= MAX_RERANKED:
        yield "rerank.candidates", most, f"between 2 and {MAX_RERANKED}"


RELATIONS = (
    _heads, _frozen, _label_vectors, _cosines, _label_optimizer, _max_steps, _pool, _propensity,
    _augmentation, _doubling, _rerank,
)  # fmt: skip
"""What must hold between settings."""


def refused_on_ranks(config: Any) -> str | None:
    """Return why a run with these settings trains on one rank alone; None where several can."""
    if config.augment.method in MIXED:
        return (
            f"several ranks mix no queries (augment.method={config.augment.method}); "
            "train with one rank"
        )
    if config.train.label_device == "host":
        return (
            "several ranks keep their label vectors on their devices (train.label_device=host); "
            "leave it out, since each rank holds a part of them"
        )
    if config.model.label_parametrization != "free":
        return (
            f"several ranks train no label vectors with texts (model.label_parametrization="
            f"{config.model.label_parametrization}), which need texts of other ranks' labels; "
            "train with one rank"
        )
    if config.rerank.kind != "none":
        return (
            f"re-ranking trains further models on one rank (rerank.kind={config.rerank.kind}); "
            "leave it out, and run umpteen rerank afterwards"
        )
    return None
