"""Write requirements.lock: every package that an install takes, with the hash of its file.

    pip install --dry-run --ignore-installed --quiet --report report.json \
        -c constraints.txt '.[dev,docs]'
    python tools/lock.py report.json > requirements.lock

``make lock`` does both. With ``pip install --require-hashes -r requirements.lock`` a file that was
exchanged on its way is refused. Hashes are those of the files for one platform: the interpreter and
system that ``make lock`` runs on.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any


def lock_lines(report: dict[str, Any], *, own: str = "umpteen") -> list[str]:
    """Return the lines of the lock file from a report of pip.

    Args:
        report: What ``pip install --report`` writes.
        own: The package itself, which is left out.

    Raises:
        ValueError: If a package comes without a hash.
    """
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == own:
            continue
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise ValueError(f"{name} {version} comes without a SHA-256")
        lines.append(f"{name}=={version} --hash=sha256:{hashes['sha256']}")
    return sorted(lines, key=str.lower)


def main() -> int:
    """Read the report named on the command line; write the lock to standard output."""
    report = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    sys.stdout.write(f"# Written by make lock; files for {where}.\n")
    sys.stdout.write("".join(f"{line}\n" for line in lock_lines(report)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
