"""Disks that refuse, for tests: no room, and no permission, as the system itself says it."""

import contextlib
import ctypes
import os
import resource
import tempfile
from pathlib import Path

NOBODY = 65534


@contextlib.contextmanager
def no_room(size: int):
    """No file of this process may grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def not_allowed(folder: Path):
    """This thread may read what is in a folder, and write nothing; root becomes nobody for it."""
    modes = {place: place.stat().st_mode for place in [folder, *folder.rglob("*")]}
    for place in modes:
        place.chmod(0o555 if place.is_dir() else 0o444)
    for place in folder.parents:  # of the test's own, so that nobody gets to the folder at all
        if Path(tempfile.gettempdir()) in place.parents:
            place.chmod(place.stat().st_mode | 0o011)
    libc = ctypes.CDLL(None)
    root = os.geteuid() == 0
    if root:
        libc.setfsuid(NOBODY)
    try:
        yield
    finally:
        if root:
            libc.setfsuid(0)
        for place, mode in modes.items():
            place.chmod(mode)
