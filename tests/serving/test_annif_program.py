"""Annif itself against a served run: its http backend suggests and evaluates over the service.

Annif pins packages that umpteen does not, so it has an environment of its own: put ``annif`` on the
path or name it in ``UMPTEEN_ANNIF``.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from umpteen.data.convert import save_dataset
from umpteen.run_folder import RunFolder

ANNIF = os.environ.get("UMPTEEN_ANNIF") or shutil.which(
    "annif", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(ANNIF is None, reason="Annif is not installed (see UMPTEEN_ANNIF)"),
]
PROJECT = """[umpteen]
name=umpteen
language=en
backend=http
endpoint={url}/v1/projects/tags/suggest
vocab=tags
limit=20
"""


def test_annif_suggests_and_evaluates_through_the_service(run, service, tiny_data, tmp_path):
    served = service(run, "--annif", "tags")
    save_dataset(tiny_data, tmp_path / "corpus", "annif-tsv")
    (tmp_path / "projects.cfg").write_text(PROJECT.format(url=served.url))

    def annif(*words, **options):
        done = subprocess.run(
            [ANNIF, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, **options
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    annif("load-vocab", "-L", "en", "tags", "corpus/vocabulary.tsv")
    labels = RunFolder(run).read_labels()[0]
    suggested = annif("suggest", "umpteen", input=f"{labels.titles[0]}\n")
    lines = [line.split("\t") for line in suggested.splitlines()]
    assert lines[0][:2] == [f"<{labels.ids[0]}>", labels.titles[0]]
    assert 0 < float(lines[0][2]) <= 1
    table = annif("eval", "-m", "Precision@1", "umpteen", "corpus/train.tsv")
    assert float(re.search(r"Precision@1:\s+([\d.]+)", table)[1]) > 0.5
