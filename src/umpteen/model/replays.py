"""A packed encoder's training pass as CUDA graphs: recorded once for a size, then replayed.

The host launches a transformer's pass call by call, some hundreds of them; a graph is one. What is
recorded are ``encode_different`` on a plan of fixed sizes and its backward pass. A replay equals
that call to the bit, dropout included: graphs draw from the device's generator as the calls would.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from umpteen.model.fixed_plan import Sizes
from umpteen.model.packed import Form
from umpteen.model.packed_forward import encode_different
from umpteen.model.packed_plan import Plan, plan_of

MOST_GRAPHS = 32
"""Further sizes are run call by call."""
Key = tuple[Sizes, bool, torch.dtype]


class Work:
    """A forward pass whose backward pass may come; it lives as long as somebody could ask for it.

    Graphs share memory, so no other pass may be replayed in between.
    """


@dataclass(frozen=True)
class Recording:
    """The graphs of one size, and the memory they read and write."""

    forward: Any
    backward: Any
    flat: Tensor
    """The plan's arrays."""
    out: Tensor
    """(M, width) vectors."""
    above: Tensor
    """(M, width) their gradient."""
    parameters: list[nn.Parameter]
    """Those that take a gradient."""
    gradients: list[Tensor]
    """Where backward leaves them."""


class Replays:
    """Runs a network's training passes by graphs.

    The first pass of a kind is run call by call, which has its kernels compiled; after that every
    size is recorded when it comes. All sizes share the memory of the largest: tensors of a smaller
    one fit where its tensors were. So whenever a larger one comes the others are forgotten, and
    recorded again when they are next needed.

    Args:
        network: The Hugging Face network.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._recordings: dict[Key, Recording] = {}
        self._compiled: set[Any] = set()
        self._stream: Any = None
        self._gradients: list[Tensor] = []
        self._out: Tensor | None = None
        self._above: Tensor | None = None
        self._made_of: list[tuple[int, int]] = []
        self._form: Form | None = None
        self._work: weakref.ref[Work] | None = None
        self.given_up = False
        """Whether recording has failed; then everything is run call by call."""

    def __len__(self) -> int:
        return len(self._recordings)

    def clear(self) -> None:
        """Forget all graphs."""
        self._recordings.clear()
        self._compiled.clear()
        self._gradients = []
        self._out = self._above = None

    def vectors(self, form: Form, plan: Plan, *, pooling: str) -> Tensor | None:
        """What ``encode_different(form, plan, pooling=pooling, training=True)`` returns.

        Valid until the next call; whoever wants to keep it makes a copy.

        Returns:
            (M, width) with a gradient, or None where this pass has to be run call by call.
        """
        if plan.sizes is None or self.given_up or (self._work is not None and self._work()):
            return None
        if form is not self._form:
            self._look_at(form)
        casting = torch.is_autocast_enabled("cuda")
        key = (plan.sizes, casting, torch.get_autocast_dtype("cuda"))
        recording = self._recordings.get(key)
        if recording is None:
            kind = (*plan.tiles, *key[1:])  # kernels differ by tiles and dtype
            if kind not in self._compiled or len(self) == MOST_GRAPHS or not _has_room():
                self._compiled.add(kind)
                return None
            if self._out is not None and plan.sizes.texts > len(self._out):
                self._recordings.clear()
                self._out = self._above = None
            recording = self._record(form, plan, pooling)
            if recording is None:
                return None
            self._recordings[key] = recording
        work = Work()
        self._work = weakref.ref(work)
        found: Tensor = _Replayed.apply(recording, work, plan.flat, *recording.parameters)
        return found

    def _look_at(self, form: Form) -> None:
        """Graphs know where weights lie: forget them if one is elsewhere or trained no longer."""
        own = [(p.data_ptr(), int(p.requires_grad)) for p in self._network.parameters()]
        if own != self._made_of:
            self.clear()
            self._made_of = own
        self._form = form

    def _record(self, form: Form, plan: Plan, pooling: str) -> Recording | None:
        device = form.word.weight.device
        generator = torch.cuda.default_generators[device.index or 0]
        state = generator.get_state()
        try:
            with torch.cuda.device(device):
                return self._graphs(form, plan, pooling)
        except RuntimeError as error:  # out of memory, or a call that cannot be recorded
            self.clear()
            self.given_up = True
            # A recording that fails leaves the generator believing that it goes on.
            fresh = torch.Generator(device)
            generator.graphsafe_set_state(fresh.graphsafe_get_state())
            generator.set_state(state)
            reason = str(error).strip().split("\n")[0]
            warnings.warn(f"training goes on without CUDA graphs: {reason}", stacklevel=2)
            return None

    def _graphs(self, form: Form, plan: Plan, pooling: str) -> Recording:
        assert plan.sizes is not None
        assert plan.flat is not None
        flat = plan.flat.clone()
        there = plan_of(plan.sizes, flat, None)
        shape = (plan.sizes.texts, form.width)
        if self._out is None or self._above is None:
            kind = torch.promote_types(form.word.weight.dtype, torch.float32)
            self._out = torch.empty(shape, dtype=kind, device=flat.device)
            self._above = torch.empty_like(self._out)
        out, above = self._out[: shape[0]], self._above[: shape[0]]
        trained = [p for p in self._network.parameters() if p.requires_grad]
        self._gradients = self._gradients or [torch.empty_like(p) for p in trained]
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._stream = self._stream or torch.cuda.Stream()
        pool = next(iter(self._recordings.values())).forward.pool() if self._recordings else None
        # Only this thread may not wait meanwhile; the one that makes batches may.
        how = {"stream": self._stream, "capture_error_mode": "thread_local"}
        with stand_ins(self._network) as leaves:
            # Results go into memory of our own, since that of a graph is the next one's too.
            with torch.cuda.graph(forward, pool=pool, **how):
                vectors = encode_different(form, there, pooling=pooling, training=True)
                out.copy_(vectors.detach())
            with torch.cuda.graph(backward, pool=forward.pool(), **how):
                found = torch.autograd.grad(vectors, leaves, above, allow_unused=True)
                reached = [i for i, gradient in enumerate(found) if gradient is not None]
                gradients = [self._gradients[i] for i in reached]
                torch._foreach_copy_(gradients, [found[i] for i in reached])
        own = [trained[i] for i in reached]
        return Recording(forward, backward, flat, out, above, own, gradients)


def _has_room() -> bool:
    """Whether as much memory is free as was ever taken: graphs keep theirs to themselves."""
    return torch.cuda.mem_get_info()[0] >= torch.cuda.max_memory_reserved()


@contextlib.contextmanager
def stand_ins(network: nn.Module) -> Iterator[list[Tensor]]:
    """Put other leaves of the graph, in the same memory, in the place of a network's parameters.

    A parameter's own node remembers the stream of the pass that first used it, and backward would
    wait for that stream, which cannot be recorded.

    Yields:
        Those that take a gradient, in the order of ``network.parameters()``.
    """
    own = [
        (module, name, parameter)
        for module in network.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]
    others = {id(p): p.detach().requires_grad_(p.requires_grad) for p in network.parameters()}
    try:
        for module, name, parameter in own:
            module._parameters[name] = others[id(parameter)]  # type: ignore[assignment]
        yield [other for other in others.values() if other.requires_grad]
    finally:
        for module, name, parameter in own:
            module._parameters[name] = parameter


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, recording: Recording, work: Work, flat: Tensor, *parameters: Tensor
    ) -> Tensor:
        recording.flat.copy_(flat)
        recording.forward.replay()
        ctx.recording, ctx.work = recording, work
        return recording.out.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.work is None:
            raise RuntimeError("a replayed pass has one backward pass; its memory is in use again")
        recording: Recording = ctx.recording
        _set_apart(recording)
        recording.above.copy_(gradient)
        recording.backward.replay()
        ctx.work = None
        return None, None, None, *(each.detach() for each in recording.gradients)


def _set_apart(recording: Recording) -> None:
    """Copy gradients that are to be added to: they may lie in the memory that backward writes."""
    pairs = list(zip(recording.parameters, recording.gradients, strict=True))
    first, memory = pairs[0]
    if first.grad is None or first.grad.data_ptr() != memory.data_ptr():
        return
    for parameter, _ in pairs:
        if parameter.grad is not None:
            parameter.grad = parameter.grad.clone()
