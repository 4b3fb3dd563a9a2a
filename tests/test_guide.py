"""Every page of the guide runs as written. Pages start from the folder of the first page."""

import shutil
import sys
from pathlib import Path

import pytest
from documents import MARKS, blocks_of, run_page

from umpteen.ranking import RETRIEVERS

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"
FIRST = GUIDE / "first-model.md"
ELSEWHERE = {"serve.md"}
"""Run by tests/serving/test_process.py, with a service."""
PRINTED = {
    "thresholds-and-probabilities.md": '"note": "no word of the text is known',
    "corrections-and-new-labels.md": '"id": "plum"',
    "extend/metric.md": "S@5 ",
    "scale.md": "It fits.",
    "inference-backends.md": '{"text": "a long yellow fruit", "labels": [{"id": "',
}
"""What the commands of a page print, among other things."""
WITH_TABLE = {"start-without-data.md"}
"""Pages that use packaged token vectors, as the first one does; the others run as where the extra
``static`` is not installed, which saves a second for each model."""
WITH_ENCODER = {"inference-backends.md"}
"""Pages that name a transformer, for which a tiny one stands."""
PAGES = [
    page
    for page in sorted(GUIDE.rglob("*.md"))
    if page != FIRST
    and page.name not in ELSEWHERE
    and any(block.mark == "run" for block in blocks_of(page))
]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder, names and output of the first page."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names, printed = run_page(FIRST, folder)
    return folder, names, printed


def test_the_first_page_trains_a_model_that_predicts(first):
    folder, names, printed = first
    assert names["top"].ids[0][:2] == ["banana", "fruit"]
    assert '"labels": [{"id": "banana"' in printed
    assert (folder / "run" / "ensemble").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(GUIDE)))
def test_the_page_runs(page, first, tmp_path, monkeypatch, request):
    for name in ("fruit", "run"):
        shutil.copytree(first[0] / name, tmp_path / name)
    if page.name in WITH_ENCODER:
        encoder = request.getfixturevalue("tiny_bert")
        shutil.copytree(encoder, tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2")
    monkeypatch.chdir(tmp_path)
    if page.name not in WITH_TABLE:
        monkeypatch.setitem(sys.modules, "wordllama", None)
    modules, path, retrievers = set(sys.modules), list(sys.path), dict(RETRIEVERS)
    try:
        _, printed = run_page(page, tmp_path)
    finally:
        for name in set(sys.modules) - modules:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        sys.path[:] = path
        for name in set(RETRIEVERS) - set(retrievers):
            del RETRIEVERS.own[name]
    assert PRINTED.get(str(page.relative_to(GUIDE)), "") in printed


def test_every_shell_block_says_what_happens_to_it():
    unmarked = [
        f"{page.relative_to(ROOT)}: {block.body.splitlines()[0]}"
        for page in GUIDE.rglob("*.md")
        for block in blocks_of(page)
        if (block.language == "sh" and not MARKS.fullmatch(block.mark))
        or (block.mark and not MARKS.fullmatch(block.mark))
    ]
    assert not unmarked


def test_most_pages_are_run():
    assert len(PAGES) >= 11
