"""Write a lock: every package that an install takes, with the hash of its file.

    pip install --dry-run --ignore-installed --quiet --report report.json \
        -c constraints.txt '.[dev,docs]'
    python tools/lock.py report.json requirements.lock

``make lock`` does both, and the same for the container (``requirements-serve.lock``). With
``pip install --require-hashes -r requirements.lock`` a file that was exchanged on its way is
refused. Hashes are those of the files for one platform: the interpreter and system that
``make lock`` runs on, and the CPU build of torch.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

HEADER = """\
# Written by make lock; files for {where}.
# torch is the CPU build: give pip an index that has it (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS).
"""


def lock_lines(report: dict[str, Any], *, own: str = "umpteen") -> list[str]:
    """Return the lines of the lock file from a report of pip.

    Args:
        report: What ``pip install --report`` writes.
        own: The package itself, which is left out.

    Raises:
        ValueError: If a package comes without a hash, or torch is not the CPU build.
    """
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == own:
            continue
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise ValueError(f"{name} {version} comes without a SHA-256")
        if name == "torch" and not version.endswith("+cpu"):
            raise ValueError(
                f"pip found torch {version}, which is not the CPU build; give pip an index that "
                "has it (PIP_EXTRA_INDEX_URL)"
            )
        lines.append(f"{name}=={version} --hash=sha256:{hashes['sha256']}")
    return sorted(lines, key=str.lower)


def main() -> int:
    """Read the report and write the lock, both named on the command line."""
    report, lock = map(Path, sys.argv[1:])
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    lines = lock_lines(json.loads(report.read_text("utf-8")))
    new = lock.with_suffix(".new")
    new.write_text(HEADER.format(where=where) + "".join(f"{line}\n" for line in lines), "utf-8")
    new.replace(lock)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
