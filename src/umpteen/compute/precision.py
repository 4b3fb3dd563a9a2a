"""Number formats: which one a run uses, and the context that applies it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from umpteen.errors import ConfigError

EIGHT_BITS_FROM = (8, 9)
"""The compute capability of the first GPUs that multiply eight-bit floating point numbers."""


def choose_device(name: str) -> torch.device:
    """Return the device that ``auto``, ``cpu`` or ``cuda`` stands for on this machine.

    Raises:
        ConfigError: If a GPU is asked for and there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no GPU on this machine; use --device cpu")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> str:
    """Return what ``auto`` stands for: bf16 on a GPU, fp32 elsewhere."""
    if name == "auto":
        return "bf16" if device.type == "cuda" else "fp32"
    return name


def require_eight_bits(device: torch.device, what: str) -> None:
    """Refuse eight-bit products where a GPU has none; a CPU multiplies what they stand for.

    Raises:
        ConfigError: If there are none; it begins with ``what`` asks for them.
    """
    if device.type != "cuda":
        return
    found = torch.cuda.get_device_capability(device)
    if found < EIGHT_BITS_FROM:
        has, needs = (".".join(map(str, version)) for version in (found, EIGHT_BITS_FROM))
        raise ConfigError(
            f"{what}: this GPU multiplies no eight-bit numbers (its compute capability is {has}, "
            f"it takes {needs} or more, such as an L40S or H100); leave it out"
        )


def at_least_float32(values: Tensor) -> Tensor:
    """Raise half precision to float32; float32 and float64 are returned unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def full_precision(values: Tensor) -> torch.autocast:
    """Run the block's operations on the values' device in the types that they are given in."""
    return torch.autocast(values.device.type, enabled=False)


@contextlib.contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Run the block's matrix products in the given precision; weights stay float32."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
        yield
