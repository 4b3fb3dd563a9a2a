"""Make the site from the repository: the README is its first page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)*(?:CONTRIBUTING|CHANGELOG|bench|examples)[^)]*)\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the README as the first page."""
    text = (ROOT / "README.md").read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to files outside of docs/ into their names."""
    return OUTSIDE.sub(r"\1", markdown)
