"""The generated reference is up to date with the code."""

from pathlib import Path

import forks

ROOT = Path(__file__).parent.parent


def test_the_reference_is_what_the_code_says(tmp_path):
    words = [str(ROOT / "tools" / "generate_reference.py"), "--check"]
    code, printed = forks.run(forks.__file__, "script", *words, file=tmp_path / "said.txt")
    assert code == 0, printed


def test_every_page_with_a_region_has_content():
    pages = [page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")]
    generated = [page for page in pages if "<!-- generated:" in page]
    assert len(generated) >= 8
    assert all(page.count("<!-- generated:") == page.count("<!-- end -->") for page in generated)
    assert all(len(page.splitlines()) > 25 for page in generated)
