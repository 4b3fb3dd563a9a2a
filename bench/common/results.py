"""Results as JSON, with the commit and the machine that they belong to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def commit() -> str:
    """The commit of the working tree, marked if it was changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def facts(device: Any = "auto") -> dict[str, Any]:
    """The commit, the versions and the machine."""
    import torch

    gpu = torch.cuda.is_available() and not str(device).startswith("cpu")
    return {
        "commit": commit(),
        "machine": torch.cuda.get_device_name() if gpu else "CPU",
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def print_facts(about: dict[str, Any]) -> None:
    """One line."""
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)


def save(path: Path | str | None, rows: list[dict[str, Any]], **about: Any) -> None:
    """Write rows and facts at once; nothing where no path is given."""
    if path is None:
        return
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", "utf-8")
    os.replace(unfinished, path)


def load(path: Path) -> dict[str, Any]:
    """Read what ``save`` wrote."""
    return json.loads(path.read_text("utf-8"))
