"""The documentation builds as a site without a warning (needs the extra docs)."""

import logging
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_site_builds_without_a_warning_and_can_be_searched(tmp_path, caplog):
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(config)
    assert not [r.message for r in caplog.records if r.name.startswith("mkdocs")]
    assert "retriever" in (tmp_path / "site" / "search" / "search_index.json").read_text("utf-8")
    pages = {str(page.relative_to(tmp_path / "site")) for page in tmp_path.rglob("*.html")}
    assert {"index.html", "guide/first-model.html", "reference/settings.html"} <= pages
