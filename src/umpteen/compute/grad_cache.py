"""Encode many texts in chunks and train through all of them, holding one chunk's graph at a time.

The vectors come from a first pass without a graph; when the loss has sent its gradient back to
them, each chunk is encoded again, with a graph and the same random numbers, and its share of the
gradient goes through it. Costs a second forward pass; memory is one chunk's, whatever their number.
No loss and no model here.

In float64 the gradients are those of encoding with the graph. In bfloat16 they differ by rounding:
the same text in a chunk of another size may be multiplied by another kernel, whose sums have
another order, so an activation may be rounded to the neighbouring number, 2^-8 of itself away; and
a weight's gradient is summed within chunks in bfloat16 products and across them in float32. Errors
of 2^-8 that are independent leave a whole gradient within about 1% of its length.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.errors import UmpteenError


@dataclass(frozen=True)
class Side:
    """One side of a loss: how its texts are encoded, and the texts in chunks."""

    encode: Callable[[Any], Tensor]
    """A chunk of n texts to (n, D)."""
    chunks: Sequence[Any]
    """Of any sizes, in order."""


def cached_vectors(side: Side, *, seed: int, stream: int = 0) -> Tensor:
    """Return the vectors of all chunks.

    With a graph that encodes each chunk again when it is needed.

    For use inside a larger loss, which is then back-propagated as any other with
    ``loss.backward()``; ``torch.autograd.grad`` does not reach the encoder's parameters. It goes
    backward once. What must hold:

    - A text's vector does not depend on the other texts of its chunk. Batch normalisation in
      training mode breaks this: chunks have statistics of their own, and running ones are updated
      twice.
    - Randomness comes from torch's default generators. They are seeded for each chunk and put back
      afterwards, those of every device in use, wherever the chunk itself lies.
    - With data-parallel hooks on the parameters, every chunk sets them off: wrap all but the last
      in ``no_sync``, or reduce the gradients once at the end.

    An autocast context around the call holds for the second pass as well.

    Args:
        side: What to encode, and how.
        seed: Of this step.
        stream: A number that differs between sides of the same seed, for other random numbers.

    Returns:
        (n, D) for the n texts of all chunks.

    Raises:
        UmpteenError: If there is no chunk.
    """
    if len(side.chunks) == 0:
        raise UmpteenError("there is nothing to encode: a side needs at least one chunk")
    if not torch.is_grad_enabled():
        return torch.cat(_first_pass(side, seed, stream))
    anchor = torch.empty(0, requires_grad=True)  # makes the result part of a graph
    result: Tensor = _Cached.apply(anchor, side, seed, stream)
    return result


@contextlib.contextmanager
def chunk_randomness(seed: int, stream: int, chunk: int) -> Iterator[None]:
    """Run with the random numbers of one chunk, and put the generators back afterwards."""
    words = np.random.SeedSequence((seed, stream, chunk)).generate_state(1, np.uint64)
    # By use and not by where a chunk lies: tokens are often on the host and dropout on the device.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(int(words[0] >> np.uint64(1)))
        yield


class _Cached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, side: Side, seed: int, stream: int) -> Tensor:
        ctx.side, ctx.seed, ctx.stream = side, seed, stream
        ctx.autocasts = _autocasts()
        found = _first_pass(side, seed, stream)
        ctx.lengths = [len(vectors) for vectors in found]
        return torch.cat(found)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        shares = gradient.split(ctx.lengths)
        for i, (chunk, share) in enumerate(zip(ctx.side.chunks, shares, strict=True)):
            with torch.enable_grad():
                vectors = _encode(ctx.side, i, chunk, ctx.seed, ctx.stream, ctx.autocasts)
            if vectors.requires_grad:  # not so if all that made it is frozen
                torch.autograd.backward(vectors, share.to(vectors.dtype))
            del vectors
        return None, None, None, None


def _first_pass(side: Side, seed: int, stream: int) -> list[Tensor]:
    autocasts = _autocasts()
    with torch.no_grad():
        return [
            _encode(side, i, chunk, seed, stream, autocasts) for i, chunk in enumerate(side.chunks)
        ]


def _encode(
    side: Side, i: int, chunk: Any, seed: int, stream: int, autocasts: list[dict[str, Any]]
) -> Tensor:
    """Encode one chunk, in the same way in both passes."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(chunk_randomness(seed, stream, i))
        for options in autocasts:
            stack.enter_context(torch.autocast(**options))
        vectors = side.encode(chunk)
    # Autocast keeps the weights it casts until its outermost context ends, and older versions of
    # torch keep those of the first pass without a graph: whatever used them next in that context
    # would lose its gradient (pytorch/pytorch#112583).
    torch.clear_autocast_cache()
    return vectors


def _autocasts() -> list[dict[str, Any]]:
    """Return the autocast settings that hold here, to have them again."""
    return [
        {
            "device_type": device,
            "dtype": torch.get_autocast_dtype(device),
            "enabled": torch.is_autocast_enabled(device),
        }
        for device in ("cpu", "cuda")
    ]
