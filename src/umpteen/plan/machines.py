"""Devices and what they reach: memory, products, bandwidth. Rates are per device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from umpteen.errors import ConfigError
from umpteen.registry import suggest

GIB = 1 << 30
TERA = 1e12


@dataclass(frozen=True)
class Machine:
    """One kind of device."""

    name: str
    memory: float
    """Bytes that a run can have."""
    products: float
    """Floating point operations a second of large matrix products: bfloat16 on a GPU."""
    bandwidth: float
    """Bytes a second to and from memory."""
    share: float = 0.7
    """Of ``products``, what a DistilBERT reaches in those of a step on an H200."""
    launch: float = 4e-3
    """Seconds of a step that no formula covers: launches, copies, small kernels."""
    link: float = 25e9
    """Bytes a second that a device sends to others while all do: 80 % of PCIe 4 by default."""

    @property
    def is_gpu(self) -> bool:
        """Whether tables and host memory are apart."""
        return self.name != "cpu"


MACHINES = {
    machine.name: machine
    for machine in (
        # Measured: products and copies of one H200 with torch 2.11.
        Machine("h200", 139 * GIB, 790 * TERA, 4.3 * TERA, link=360e9),
        # From data sheets, products and links at 80 %, bandwidth at 90 % of what they promise.
        Machine("h100", 79 * GIB, 790 * TERA, 3.0 * TERA, link=360e9),
        Machine("a100", 79 * GIB, 250 * TERA, 1.8 * TERA, link=240e9),
        Machine("a100-40", 39 * GIB, 250 * TERA, 1.4 * TERA, link=240e9),
        Machine("l40s", 44 * GIB, 290 * TERA, 0.78 * TERA),
        Machine("a6000", 47 * GIB, 124 * TERA, 0.69 * TERA),
        Machine("rtx4090", 23 * GIB, 132 * TERA, 0.9 * TERA),
        # Two cores with AVX2 in float32; more cores are proportionally faster, up to the bandwidth.
        Machine("cpu", 16 * GIB, 0.1 * TERA, 0.02 * TERA, share=0.6, launch=2e-3, link=1e9),
    )
}


def find_machine(name: str, *, memory_gib: float | None = None) -> Machine:
    """Return a machine by name, with other memory if given.

    Raises:
        ConfigError: If the name is unknown or the memory not above 0.
    """
    if name not in MACHINES:
        raise ConfigError(
            f"--gpu {name!r} is not known; known are {', '.join(MACHINES)}, and --memory GIB says "
            f"what yours has.{suggest(name, MACHINES)}"
        )
    return with_memory(MACHINES[name], memory_gib)


def with_memory(machine: Machine, memory_gib: float | None) -> Machine:
    """Return the machine with other memory if given.

    Raises:
        ConfigError: If the memory is not above 0.
    """
    if memory_gib is None:
        return machine
    if not memory_gib > 0:
        raise ConfigError(f"--memory must be above 0 GiB, not {memory_gib}")
    return replace(machine, memory=memory_gib * GIB)
