"""Write the generated parts of docs/reference from the code.

A page holds text written by hand and regions between ``<!-- generated: NAME -->`` and
``<!-- end -->``; NAME is a function of ``reference_sections``.

    python tools/generate_reference.py           # write
    python tools/generate_reference.py --check   # exit 1 if a page is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import reference_sections  # noqa: E402

PAGES = Path(__file__).parents[1] / "docs" / "reference"
REGION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.S)


def generated(text: str) -> str:
    """Return a page with its regions made again."""
    return REGION.sub(
        lambda match: f"{match[1]}\n{getattr(reference_sections, match[2])()}\n\n{match[3]}", text
    )


def outdated() -> dict[Path, str]:
    """Return the pages that differ from the code, with what they should be."""
    pages = {page: page.read_text("utf-8") for page in sorted(PAGES.glob("*.md"))}
    return {page: new for page, old in pages.items() if (new := generated(old)) != old}


def main() -> int:
    """Write the pages, or check them."""
    changed = outdated()
    if "--check" in sys.argv[1:]:
        for page in changed:
            sys.stderr.write(f"{page} is out of date; run: python {sys.argv[0]}\n")
        return 1 if changed else 0
    for page, text in changed.items():
        page.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
