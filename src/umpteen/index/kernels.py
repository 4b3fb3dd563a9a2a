"""Triton kernels of the search, each equal to a plain expression in ``groups.py``.

Imported only where Triton is at hand: on a GPU, or in Triton's interpreter.
"""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from umpteen.index.groups import GROUP, SPAN


@dataclass(frozen=True)
class Tile:
    """The shape of a score tile, and how it is computed."""

    queries: int = 128
    labels: int = 256
    bytes_deep: int = 128
    """Of each vector, at a time."""
    warps: int = 8
    stages: int = 3
    persistent: bool = False
    """As many programs as processors, fed by the copy engine; else one program for each tile."""


TILES = {"tiled": Tile(), "persistent": Tile(persistent=True)}
COPY_ENGINE = 9
"""The first generation of GPUs that can feed a persistent tile."""
CANDIDATES_PER_PROGRAM = 32


def group_maxima(
    queries: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor, *, tile: Tile | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``groups.plain_maxima`` gives, without writing a score.

    Args:
        queries: (B, D) bfloat16 or float8; D times the bytes of an element a multiple of 128.
        labels: (C, D) of the same dtype; C a multiple of 256.
        bias: (C,) float32.
        tile: How to work; None for the default.

    Returns:
        (B, C / GROUP) and (B, C / SPAN), float32.
    """
    maxima, best = _maxima(queries, labels, bias, tile, groups=True)
    return maxima, best


def span_maxima(
    queries: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor, *, tile: Tile | None = None
) -> torch.Tensor:
    """Return what ``spans.plain_span_maxima`` gives: the second of ``group_maxima`` alone."""
    return _maxima(queries, labels, bias, tile, groups=False)[1]


def _maxima(
    queries: torch.Tensor,
    labels: torch.Tensor,
    bias: torch.Tensor,
    tile: Tile | None,
    *,
    groups: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    n_queries, dim = queries.shape
    tile = tile or default_tile(queries.device, n_queries, len(labels))
    down = -(-n_queries // tile.queries)
    if n_queries != down * tile.queries:
        padded = queries.new_zeros(down * tile.queries, dim)
        padded[:n_queries] = queries
        queries = padded
    across = len(labels) // tile.labels
    maxima = bias.new_empty(len(queries) if groups else 0, len(labels) // GROUP)
    best = bias.new_empty(len(queries), len(labels) // SPAN)
    deep = min(dim, tile.bytes_deep // labels.element_size())
    shape = {"TILE_Q": tile.queries, "TILE_L": tile.labels, "DEEP": deep, "DIM": dim}
    # The interpreter multiplies the bits of bfloat16 as if they were whole numbers.
    shape |= {"WIDE": SPAN, "FEW": GROUP, "GROUPS": groups, "INTERPRETED": not queries.is_cuda}
    how = {"num_warps": tile.warps, "num_stages": tile.stages}
    outputs = (bias, maxima, best, down, len(labels))
    if tile.persistent:
        programs = _processors(queries.device)
        sources = (
            TensorDescriptor.from_tensor(queries, [tile.queries, deep]),
            TensorDescriptor.from_tensor(labels, [tile.labels, deep]),
        )
        grid = (min(programs, down * across),)
        _maxima_persistent[grid](
            *sources, *outputs, down * across, PROGRAMS=grid[0], **shape, **how
        )
    else:
        _maxima_tiled[(down * across,)](queries, labels, *outputs, **shape, **how)
    return maxima[:n_queries], best[:n_queries]


def default_tile(device: torch.device, n_queries: int, n_labels: int) -> Tile:
    """Return the fastest on an H200.

    3.4 ms against 4.0 tiled in bfloat16, 2.2 against 3.0 in float8.

    GPUs before it have no engine that copies tiles. With fewer tiles than processors, for whose
    number the kernel is compiled, there is nothing to gain.
    """
    plain, fed = TILES["tiled"], TILES["persistent"]
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < COPY_ENGINE:
        return plain
    n_tiles = -(-n_queries // fed.queries) * (n_labels // fed.labels)
    return fed if n_tiles >= _processors(device) else plain


def candidate_scores(
    queries: torch.Tensor, vectors: torch.Tensor, groups: torch.Tensor
) -> torch.Tensor:
    """Return what ``groups.plain_scores`` gives, reading each vector once and writing none.

    Args:
        queries: (B, D), of the vectors' dtype.
        vectors: (L, D) float32 or bfloat16.
        groups: (B, W) int64.

    Returns:
        (B, W * GROUP) float32; of labels beyond L the score of the last one.
    """
    width = groups.shape[1] * GROUP
    scores = queries.new_empty(len(queries), width, dtype=torch.float32)
    _candidate_scores[(len(queries), -(-width // CANDIDATES_PER_PROGRAM))](
        queries.contiguous(),
        vectors,
        groups.contiguous(),
        scores,
        width,
        len(vectors),
        vectors.shape[1],
        MANY=CANDIDATES_PER_PROGRAM,
        DEEP=min(128, triton.next_power_of_2(vectors.shape[1])),
        WIDE=SPAN,
        FEW=GROUP,
        num_warps=4,
    )
    return scores


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # the interpreter's; any number will do
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit
def _store_maxima(
    scores,
    bias,
    maxima,
    best,
    query_tile,
    label_tile,
    n_labels,
    TILE_Q: tl.constexpr,
    TILE_L: tl.constexpr,
    WIDE: tl.constexpr,
    FEW: tl.constexpr,
    GROUPS: tl.constexpr,
):
    columns = label_tile * TILE_L + tl.arange(0, TILE_L)
    scores += tl.load(bias + columns)[None, :]
    parts = tl.reshape(scores, (TILE_Q, TILE_L // WIDE, FEW, WIDE // FEW))
    of_groups = tl.max(parts, axis=2)  # (TILE_Q, spans, groups of a span)
    of_spans = tl.max(of_groups, axis=2)  # (TILE_Q, spans)
    # The product of two row numbers may exceed 32 bits.
    rows = (query_tile * TILE_Q + tl.arange(0, TILE_Q)).to(tl.int64)
    if GROUPS:
        groups = label_tile * (TILE_L // FEW) + tl.arange(0, TILE_L // FEW)
        flat = tl.reshape(of_groups, (TILE_Q, TILE_L // FEW))
        tl.store(maxima + rows[:, None] * (n_labels // FEW) + groups[None, :], flat)
    spans = label_tile * (TILE_L // WIDE) + tl.arange(0, TILE_L // WIDE)
    tl.store(best + rows[:, None] * (n_labels // WIDE) + spans[None, :], of_spans)


# Sizes that change from block to block are not compiled in.
@triton.jit(do_not_specialize=["n_query_tiles"])
def _maxima_tiled(
    queries,
    labels,
    bias,
    maxima,
    best,
    n_query_tiles,
    n_labels,
    TILE_Q: tl.constexpr,
    TILE_L: tl.constexpr,
    DEEP: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    FEW: tl.constexpr,
    GROUPS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    # All queries against one tile of labels, then the next: labels are read from memory once.
    query_tile = tl.program_id(0) % n_query_tiles
    label_tile = tl.program_id(0) // n_query_tiles
    # One far step for the tile, near ones of 32 bits within it.
    queries += query_tile.to(tl.int64) * (TILE_Q * DIM)
    labels += label_tile.to(tl.int64) * (TILE_L * DIM)
    depth = tl.arange(0, DEEP)
    query_places = tl.arange(0, TILE_Q)[:, None] * DIM + depth[None, :]
    label_places = tl.arange(0, TILE_L)[None, :] * DIM + depth[:, None]
    scores = tl.zeros((TILE_Q, TILE_L), tl.float32)
    for start in range(0, DIM, DEEP):
        some = tl.load(queries + start + query_places)
        theirs = tl.load(labels + start + label_places)
        if INTERPRETED:
            some, theirs = some.to(tl.float32), theirs.to(tl.float32)
        scores = tl.dot(some, theirs, scores)
    _store_maxima(
        scores,
        bias,
        maxima,
        best,
        query_tile,
        label_tile,
        n_labels,
        TILE_Q,
        TILE_L,
        WIDE,
        FEW,
        GROUPS,
    )


@triton.jit(do_not_specialize=["n_query_tiles", "n_tiles"])
def _maxima_persistent(
    queries,
    labels,
    bias,
    maxima,
    best,
    n_query_tiles,
    n_labels,
    n_tiles,
    PROGRAMS: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_L: tl.constexpr,
    DEEP: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    FEW: tl.constexpr,
    GROUPS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    # Flattened, so that the next tile's vectors come in while this one's maxima go out.
    for tile in tl.range(tl.program_id(0), n_tiles, PROGRAMS, flatten=True):
        query_tile = tile % n_query_tiles
        label_tile = tile // n_query_tiles
        scores = tl.zeros((TILE_Q, TILE_L), tl.float32)
        for depth in range(0, DIM, DEEP):
            some = queries.load([query_tile * TILE_Q, depth])
            theirs = labels.load([label_tile * TILE_L, depth])
            if INTERPRETED:
                some, theirs = some.to(tl.float32), theirs.to(tl.float32)
            scores = tl.dot(some, theirs.T, scores)
        _store_maxima(
            scores,
            bias,
            maxima,
            best,
            query_tile,
            label_tile,
            n_labels,
            TILE_Q,
            TILE_L,
            WIDE,
            FEW,
            GROUPS,
        )


@triton.jit(do_not_specialize=["width"])
def _candidate_scores(
    queries,
    vectors,
    groups,
    scores,
    width,
    n_labels,
    dim,
    MANY: tl.constexpr,
    DEEP: tl.constexpr,
    WIDE: tl.constexpr,
    FEW: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * MANY + tl.arange(0, MANY)
    inside = places < width
    group = tl.load(groups + query * (width // FEW) + places // FEW, mask=inside, other=0)
    rows = group // (WIDE // FEW) * WIDE + group % (WIDE // FEW) + places % FEW * (WIDE // FEW)
    rows = tl.minimum(rows, n_labels - 1).to(tl.int64)
    sums = tl.zeros((MANY, DEEP), tl.float32)
    for start in range(0, dim, DEEP):
        depth = start + tl.arange(0, DEEP)
        whole = depth < dim
        some = tl.load(queries + query * dim + depth, mask=whole, other=0.0).to(tl.float32)
        read = inside[:, None] & whole[None, :]
        theirs = tl.load(vectors + rows[:, None] * dim + depth[None, :], mask=read, other=0.0)
        sums += theirs.to(tl.float32) * some[None, :]
    tl.store(scores + query * width + places, tl.sum(sums, axis=1), mask=inside)
