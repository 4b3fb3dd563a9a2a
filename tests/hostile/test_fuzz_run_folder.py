"""Random damage to any file of a run: it is loaded, or refused with a sentence of ours.

Reads every loader of a run folder: settings, labels, model, tokenizer, vectors, ensemble with its
retrievers and examples, indexes, the store of changes, and checkpoints.
"""

import contextlib
import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings

from umpteen.errors import UmpteenError
from umpteen.predictor import Predictor
from umpteen.report import write_report
from umpteen.run_folder import RunFolder

from .damage import damaged, damages

N_EXAMPLES = int(os.environ.get("UMPTEEN_FUZZ", 6))
"""For each file; more of them find more."""


@pytest.fixture(scope="module")
def whole(tiny_run, tmp_path_factory):
    """A run with everything: ensemble, indexes of both kinds, added labels and examples."""
    from umpteen.index.exact import ExactIndex

    run = shutil.copytree(tiny_run, tmp_path_factory.mktemp("fuzzed") / "run")
    model = Predictor.load(run, device="cpu")
    model.add_labels({"new": "purple lantern", "other": "green lantern"})
    model.add_examples(["a purple thing", "another thing"], [["new"], ["L00", "other"]])
    model.retire_labels(["L01"])
    for head in model.vector_heads:
        place = run / "index" / head
        place.mkdir(parents=True)
        ExactIndex.build(model.label_vectors.numpy(head)).save(place / "index")
        about = {"kind": "exact", "model": RunFolder(run).model().name}
        (place / "about.json").write_text(json.dumps(about))
    model.store.close()
    return run


def pieces(run):
    """The files that are read, by name."""
    best = RunFolder(run).model()
    files = sorted(p for p in run.rglob("*") if p.is_file() and "checkpoints" not in p.parts)
    used = [p for p in files if "models" not in p.parts or best in p.parents]
    return [str(path.relative_to(run)) for path in used]


def use(run, page):
    """Everything that reads a run; raises only what users may see."""
    model = Predictor.load(run, device="cpu")
    top = model.predict(["old river mirror", "", "a purple thing"], 3, explain=True)
    assert top.rows.shape == (3, 3)
    if "ensemble" in model.heads:
        model.predict("old river", 2, threshold="groups")
    for head in model.vector_heads:
        assert not np.isnan(model.predict("old river", 2, head=head).scores).any()
    write_report(run, out=page, device="cpu")


def fuzz(run, name, page):
    """Damage one file again and again; return the first that is no sentence of ours."""
    path = run / name
    if os.environ.get("UMPTEEN_FUZZ_SHOW"):
        os.write(2, f"{name}\n".encode())
    original = path.read_bytes()

    @settings(max_examples=N_EXAMPLES, deadline=None, database=None)
    @given(changes=damages)
    def attempt(changes):
        path.write_bytes(damaged(original, changes))
        with contextlib.suppress(UmpteenError):
            use(run, page)

    try:
        attempt()
    except Exception as error:
        return f"{name}: {type(error).__name__}: {str(error)[:200]} {notes(error)}"
    finally:
        path.write_bytes(original)
        for side in run.glob("changes.sqlite-*"):
            side.unlink()


def notes(error):
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"({last.filename}:{last.lineno}) {' '.join(getattr(error, '__notes__', ()))[:300]}"


def test_every_file_of_a_run_is_loaded_or_refused(whole, tmp_path):
    """One test over all files, so that no file of a later version is forgotten."""
    files = pieces(whole)
    assert len(files) > 20
    found = [fuzz(whole, name, tmp_path / "report.html") for name in files]
    problems = [problem for problem in found if problem]
    assert not problems, "\n".join(["", *problems])
    use(whole, tmp_path / "report.html")
