"""What ranks exchange: bytes that each of G devices sends in a step, a refresh and a validation.

A sum of n bytes over all ranks goes around a ring: each sends 2 n (G - 1) / G. Gathering n bytes of
each sends (G - 1) n. What the first rank has goes to all with n (G - 1) / G for each on average.
Letters as in ``formulas.py``; docs/explanation/distributed.md says what travels when.
"""

from __future__ import annotations

from umpteen.plan import formulas
from umpteen.plan.job import Job
from umpteen.plan.machines import Machine

SUMMARY = 2
"""Numbers that an objective keeps of a block's scores for each query: a maximum and a sum."""
PLACES = 100
"""Labels of a query that a validation looks at, for R@100."""


def ring(job: Job, size: float) -> float:
    """Return what a sum over all ranks sends."""
    return 2.0 * size * (job.gpus - 1) / job.gpus


def gathered(job: Job, size: float) -> float:
    """Return what gathering as many bytes of every rank sends."""
    return size * (job.gpus - 1)


def from_first(job: Job, size: float) -> float:
    """Return what sending the first rank's bytes to all takes of each rank, on average."""
    return size * (job.gpus - 1) / job.gpus


def step_bytes(job: Job) -> float:
    """Return bytes of a step: query vectors and their gradient, summaries, gradients of weights."""
    heads = job.dual + job.classifier
    vectors = ring(job, 2 * 4.0 * job.batch * heads * job.dim)
    # Of each objective: summaries of the queries' scores, and the scores of positives.
    drawn = min(job.positives, job.drawn) if job.scope == "batch" else job.positives
    scores = heads * (gathered(job, 4.0 * SUMMARY * job.batch) + ring(job, 4.0 * job.batch * drawn))
    return vectors + scores + gradient_bytes(job)


def gradient_bytes(job: Job) -> float:
    """Return bytes of the gradients of encoder and heads; a frugal encoder's table is sparse."""
    shape = job.encoder
    heads = (job.dual + job.classifier) * (shape.hidden + 1) * job.dim
    if job.frozen:
        return ring(job, 4.0 * job.classifier * (shape.hidden + 1) * job.dim)
    dense = shape.product_weights + heads
    if not shape.frugal:
        return ring(job, 4.0 * (dense + shape.table_weights))
    # Each rank has the distinct tokens of its texts; row numbers are 8 bytes.
    factor, power = job.vocabulary
    labels = formulas.pool_labels(job) * job.dual * (job.label_tokens or job.tokens)
    tokens = (job.batch * job.tokens + labels) / job.gpus
    rows = job.gpus * min(tokens, shape.vocabulary, factor * tokens**power)
    return ring(job, 4.0 * dense + rows * (4.0 * shape.hidden + 8))


def refresh_bytes(job: Job) -> float:
    """Return bytes of a refresh: vectors of queries and labels, hard negatives, clusters."""
    if not formulas.refreshes(job):
        return 0.0
    total = ring(job, 4.0 * job.queries * job.dim)
    if formulas.mines(job):
        vectors = 4.0 * job.labels * job.dim
        if formulas.keeps_shards(job):
            total += gathered(job, 12.0 * job.queries * job.mined)
        else:
            total += ring(job, vectors) if job.dual else 2 * from_first(job, vectors)
            total += ring(job, 4.0 * job.queries * job.mined)
    # The order after the first levels of clusters, then that after the last.
    return total + from_first(job, 8.0 * job.queries) + ring(job, 8.0 * job.queries)


def validation_bytes(job: Job, texts: float, *, kept: bool = True) -> float:
    """Return bytes of a validation: query vectors, top labels by head, and a model that is kept.

    Args:
        job: The run.
        texts: Texts that it validates on.
        kept: Whether the first rank writes the model, with the label vectors of all.
    """
    heads = job.dual + job.classifier
    searched = 3 if heads == 2 else 1  # of two heads their sum too
    total = ring(job, 4.0 * texts * heads * job.dim)
    total += searched * gathered(job, 12.0 * texts * min(PLACES, job.labels))
    if kept:
        size = formulas.VECTOR_BYTES[job.label_storage] * job.classifier + 4 * heads
        total += from_first(job, float(job.labels * job.dim * size) / job.gpus)
    return total


def seconds(job: Job, machine: Machine, size: float) -> float:
    """Return how long the links take for what each rank sends."""
    return size / machine.link if job.gpus > 1 else 0.0
