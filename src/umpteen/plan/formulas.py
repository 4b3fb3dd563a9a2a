"""The formulas of a plan, each a function of a job: bytes, floating point operations, seconds.

Letters as in docs/explanation/path.md: N queries, L labels, B batch, C pool, D dim; t tokens of a
text, h and f the encoder's hidden and inner sizes, G devices. Bytes are those of one device, the
fullest one.
"""

from __future__ import annotations

import math

from umpteen.compute.distributed import SHARDED_BYTES
from umpteen.plan.job import Job
from umpteen.plan.machines import GIB, Machine

POOL_SHARE = 0.65
"""Distinct labels among those drawn: queries of a cluster want the same ones (WordNet-Related,
batches of 1,000: some 6,000 of 9,000)."""
SCORE_COPIES = 6
"""(B, C) tensors in float32 alive at once for a head: scores, both directions, their gradients."""
AGAIN = 1 / 3
"""Of a forward pass: the products that backward makes again, 4 of a layer's 12 h squared."""
SEARCHED_AT_ONCE, LABELS_IN_BLOCK = 2048, 262_144
"""Queries and labels whose scores a search on a GPU holds."""
SLACK = 1.1
"""What the allocator holds beyond what is asked for."""
HOST_PER_TEXT = 0.6e-6
"""Seconds that the host takes for a text's tokens and their places in packed chunks, before it can
launch a chunk (0.6 ms to gather and 1.7 to plan 4,100 texts, of an H200's host)."""
VECTOR_BYTES = {"fp32": 4, "bf16": 2}
MOMENT_BYTES = {"fp32": (8, 4), "int8": (2, 12)}
"""For each number of the table, and for each row."""


def pool_labels(job: Job) -> int:
    """Return C: the labels of a step whose texts are encoded and whose vectors are touched."""
    if job.scope == "all":
        return job.labels
    drawn = math.ceil(job.batch * job.drawn * POOL_SHARE)
    capped = min(drawn, job.max_labels or drawn)
    return min(job.labels, max(capped, job.min_labels))


def own_labels(job: Job) -> int:
    """Return labels of the fullest device."""
    return math.ceil(job.labels / job.gpus)


# -- memory of a device -----------------------------------------------------------------------


def held_rows(job: Job) -> int:
    """Return rows of the label table on the device: all of its part, or those of three visits."""
    if not job.classifier:
        return 0
    if job.label_device == "host":
        return min(3 * pool_labels(job), own_labels(job))
    return own_labels(job)


def label_vectors(job: Job) -> float:
    """Return bytes of L D / G numbers, where there is a classifier."""
    return held_rows(job) * job.dim * VECTOR_BYTES[job.label_storage]


def label_moments(job: Job) -> float:
    """Return bytes of two moments for each number, and a step count and scales for each row."""
    entry, row = MOMENT_BYTES[job.label_moments]
    return held_rows(job) * (job.dim * entry + row)


def label_gradient(job: Job) -> float:
    """Return bytes of the label gradient: the pool's rows, or one block's against all labels.

    Label dropout or an added cross-entropy against all labels would hold the whole table's.
    """
    size = VECTOR_BYTES[job.label_storage]
    if job.scope == "all":
        return 0.0
    return pool_labels(job) * job.dim * (4 + size) * job.classifier


def encoder_states(job: Job) -> float:
    """Return bytes of weights, two moments and gradients: 16 for each weight.

    Bfloat16 copies for products.

    A frugal encoder's table has no dense gradient.
    """
    shape = job.encoder
    if job.frozen:
        return 4.0 * (shape.product_weights + shape.table_weights)
    heads = (job.dual + job.classifier) * shape.hidden * job.dim
    dense = shape.product_weights + heads
    table = shape.table_weights * (12 if shape.frugal else 16)
    return dense * (16 + 2 * job.bf16) + table


def token_bytes(job: Job) -> float:
    """Return what backward needs of a token, in all layers.

    Of a layer of a packed encoder: queries, keys and values, and the sums before both norms, 5 h;
    all else is made again. Nothing of dropout.
    """
    shape = job.encoder
    size = 2 if job.bf16 else 4
    if shape.frugal:
        return 4.0 * shape.hidden
    return shape.layers * size * 5.0 * shape.hidden


def step_tokens(job: Job) -> float:
    """Return tokens that a device encodes with a graph at once; packed, so without padding."""
    if job.frozen:
        return 0.0
    own = job.batch * job.tokens / job.gpus
    if job.scope == "all":
        # A batch within a chunk keeps its graph while one chunk of labels after the other goes
        # backward; a larger one goes in chunks itself.
        chunk = float(job.chunk_tokens)
        labels = own_labels(job) * job.tokens * job.dual
        return own + min(chunk, labels) if own <= chunk else chunk
    if not job.dual:
        return own
    return own + pool_labels(job) * job.tokens / job.gpus


def backward_tokens(job: Job) -> float:
    """Return tokens that go backward together: against all labels one chunk after the other."""
    if job.scope != "all":
        return step_tokens(job)
    return min(step_tokens(job), float(job.chunk_tokens))


def trained_tokens(job: Job) -> float:
    """Return tokens that a device encodes with a graph in the whole step.

    In one go or in chunks.
    """
    labels = pool_labels(job) if job.dual else 0
    return 0.0 if job.frozen else (job.batch + labels) * job.tokens / job.gpus


def activations(job: Job) -> float:
    """Return bytes of activations of the step's tokens, and of some vectors per text in float32.

    And of the one layer that goes backward: what was made again and the gradients of it, two of f
    and six of h; the token and position vectors in float32.
    """
    texts, shape = step_tokens(job) / job.tokens, job.encoder
    passing = 0.0
    if not shape.frugal:
        size = 2 if job.bf16 else 4
        passing = size * (2.0 * shape.inner + 6 * shape.hidden) + 8.0 * shape.hidden
    kept = step_tokens(job) * token_bytes(job) + backward_tokens(job) * passing
    return kept + texts * 4 * (4 * shape.hidden + 6 * job.dim)


def scores(job: Job) -> float:
    """Return bytes of (B, C) scores for each head; one bounded block against all labels."""
    pool = 4.0 * SCORE_COPIES * job.batch * pool_labels(job) / job.gpus
    if job.scope == "all":
        return float(min(job.block_bytes, pool))
    bank = job.block_bytes if job.scope == "bank" else 0
    return pool * (job.dual + job.classifier) + bank


def dual_labels(job: Job) -> float:
    """Return bytes of the dual vectors of all labels and their gradient (scope ``all``).

    The bank's vectors.
    """
    if not job.dual or job.scope == "batch":
        return 0.0
    return own_labels(job) * job.dim * 4.0 * (2 if job.scope == "all" else 1)


def frozen_queries(job: Job) -> float:
    """Return a frozen encoder's vectors of all queries, kept in float32."""
    return job.queries * job.encoder.hidden * 4.0 * job.frozen


def refresh_buffers(job: Job) -> float:
    """Return bytes of a refresh on the first device: vectors of all queries and labels.

    (N + L) D numbers in float32, again for queries while they are put in order, and bfloat16 copies
    of the labels to search with. Of many labels each device has its own alone.
    """
    if not refreshes(job):
        return 0.0
    held = own_labels(job) if keeps_shards(job) else job.labels
    labels = held * job.dim * 6.0 if mines(job) else 0.0
    return job.queries * job.dim * 8.0 + labels


def validation_buffers(job: Job) -> float:
    """Return bytes of a validation: vectors of a device's labels, heads side by side.

    4 bytes a number; of both heads each is searched alone too, with a copy of its own (4) and one
    in bfloat16 (2). With the table on the host, these vectors are there too; blocks of them visit
    the device, and the dual head's once. And the scores of 2,048 queries.
    """
    heads = job.dual + job.classifier
    numbers = float(own_labels(job) * job.dim)
    scores = min(2.0 * GIB, 4.0 * SEARCHED_AT_ONCE * own_labels(job))
    if job.label_device == "host" and job.classifier:
        block = 4.0 * min(job.labels, LABELS_IN_BLOCK) * job.dim * heads
        return 4 * numbers * job.dual + 2 * block + scores
    return numbers * (14 if heads == 2 else 6) + scores


def keeps_shards(job: Job) -> bool:
    """Return whether a refresh leaves label vectors on the device that encodes them."""
    return job.gpus > 1 and job.dual and 4 * job.labels * job.dim > SHARDED_BYTES


def refreshes(job: Job) -> bool:
    """Return whether there is anything to refresh."""
    return job.clustered or mines(job)


def mines(job: Job) -> bool:
    """Return whether hard negatives are searched."""
    return job.scope != "all" and job.mined > 0


# -- memory of the host -----------------------------------------------------------------------


def host_table(job: Job) -> float:
    """Label vectors and moments, where they are on the host."""
    if job.label_device != "host" or not job.classifier:
        return 0.0
    entry, row = MOMENT_BYTES[job.label_moments]
    return job.labels * (job.dim * (entry + VECTOR_BYTES[job.label_storage]) + row)


def host_search(job: Job) -> float:
    """Return host bytes of the vectors that validation searches: both heads, in float32."""
    there = job.label_device == "host" and job.classifier
    return job.labels * job.dim * 4.0 * (job.dual + job.classifier) * there


def host_tokens(job: Job) -> float:
    """Return bytes of token ids and offsets; memory-mapped, so the system may drop them."""
    size = 2 if job.encoder.vocabulary < 2**16 else 4
    return (job.queries + job.labels) * (job.tokens * size + 8)


def host_targets(job: Job) -> float:
    """Return bytes of all positives, twice: as loaded, and without filter pairs."""
    return 2 * (job.queries * job.positives * 8.0 + job.queries * 8)


def host_negatives(job: Job) -> float:
    """Return the mined labels of every query in int32."""
    return job.queries * job.mined * 4.0 * mines(job)


def host_texts(job: Job) -> float:
    """Return bytes of texts: 4 a token and Python's overhead; ids likewise."""
    return (job.queries + job.labels) * (job.tokens * 4 + 2 * 60)


# -- floating point operations, of all devices together -----------------------------------------


def encode(job: Job, texts: float, passes: float) -> float:
    """Return operations of the encoder: 2 for each weight, token and pass.

    Attention 4 t h for each token and layer.

    A pass forward is 1, a backward one 2.
    """
    shape = job.encoder
    if shape.frugal:
        return 2.0 * passes * texts * shape.product_weights
    tokens = texts * job.tokens
    attention = 4 * job.tokens * shape.hidden * shape.layers
    return passes * tokens * (2 * shape.product_weights + attention)


def step_operations(job: Job) -> float:
    """Return operations of encoder, heads and scores, forward and backward.

    Against all labels each label's text is encoded once without a graph and once with one, and
    scores are made twice.
    """
    labels = pool_labels(job) if job.dual else 0
    total = 0.0
    if not job.frozen:
        backward = 3 + AGAIN * (not job.encoder.frugal)
        total += encode(job, job.batch, backward)
        total += encode(job, labels, backward + (job.scope == "all"))
    total += 6.0 * (job.batch + labels) * job.encoder.hidden * job.dim
    products = 8.0 if job.scope == "all" else 6.0
    scored = job.labels if job.scope == "bank" and job.dual else labels
    total += products * job.batch * scored * job.dim
    return total + products * job.batch * pool_labels(job) * job.dim * job.classifier


def step_bytes(job: Job) -> float:
    """Return what the optimizer moves on a device: each state read and written, once."""
    entry, row = MOMENT_BYTES[job.label_moments]
    rows = pool_labels(job) / job.gpus * job.classifier
    size = VECTOR_BYTES[job.label_storage]
    table = rows * (job.dim * (2 * (entry + size) + 4) + 2 * row)
    shape = job.encoder
    dense = 0 if job.frozen else shape.product_weights
    dense += 0 if job.frozen or shape.frugal else shape.table_weights
    return table + dense * 28.0


def reached(job: Job, machine: Machine) -> float:
    """Return operations a second.

    Less for narrow layers, whose products are over before they are fast.
    """
    if not machine.is_gpu:
        return machine.products * machine.share
    width = min(1.0, job.encoder.hidden / 768)
    return machine.products * machine.share * width * (1.0 if job.bf16 else 0.1)


def step_seconds(job: Job, machine: Machine) -> float:
    """Return seconds of a step from its operations and bytes.

    Bytes at its bandwidth.

    Element-wise work passes over a token's vectors some 56 times a layer, forward and backward.
    """
    moved = step_bytes(job) + 11 * trained_tokens(job) * token_bytes(job)
    return (
        step_operations(job) / job.gpus / reached(job, machine)
        + moved / machine.bandwidth
        + machine.launch * (1 + 0.5 * (job.gpus > 1))
    )


def refresh_seconds(job: Job, machine: Machine) -> float:
    """Encode everything, cluster, search N x L, each device its share.

    The first device makes as many clusters as there are devices, which split them further.

    Forward passes go over a token's vectors some 20 times a layer. A level of clusters has eight
    rounds that each read and write all vectors and read them twice more. Of each eight scores of
    the search a maximum is written and read, and of each query the labels of its best groups are
    read: eight times the mined ones and as many again, and its own.
    """
    if not refreshes(job):
        return 0.0
    labels = job.labels if mines(job) and job.dual else 0
    texts = job.queries + labels
    operations = encode(job, texts, 1)
    moved = 4 * texts * job.tokens * token_bytes(job) * (not job.encoder.frugal)
    levels = math.log2(max(2.0, job.queries / job.batch)) * job.clustered
    level = 8 * 4 * job.queries * job.dim * 4.0 / machine.bandwidth
    alone = min(levels, math.ceil(math.log2(job.gpus)))
    clustered = level * (alone + (levels - alone) / job.gpus)
    if mines(job):
        operations += 2.0 * job.queries * job.labels * job.dim
        if machine.is_gpu:
            candidates = 8 * (2 * job.mined + job.positives) * job.dim
            moved += job.queries * (job.labels + 4.0 * candidates)
    host = texts * HOST_PER_TEXT * machine.is_gpu * (not job.encoder.frugal)
    shared = operations / reached(job, machine) + moved / machine.bandwidth + host
    return clustered + shared / job.gpus
