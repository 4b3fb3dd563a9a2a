"""Random damage to files that users hand over, and to parts of a run that other tests lack."""

import contextlib
import io
import json
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import checkpoints, fit, stop_at

from umpteen.cli import main
from umpteen.config.loading import load_config
from umpteen.data.labels import LabelSet
from umpteen.errors import UmpteenError
from umpteen.model.transformer import TransformerEncoder
from umpteen.scoring import read_predictions
from umpteen.study.definition import read_study

from .damage import damaged, damages

fuzz = settings(
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
PRESET = b"""seed = 3
[encoder]
name = "bag"
options = { hidden = 8 }
[loss]
dual = "softmax"
[train]
epochs = 3
lr_heads = 1e-3
"""
STUDY = b"""name = "s"
title = "t"
[data.a]
path = "x"
[method.m]
preset = "unidec"
set = ["train.epochs=3"]
"""
PREDICTIONS = b'{"labels": ["a", {"id": "b", "score": 0.5}]}\n{"labels": []}\n'
LABELS = b'{"id": "n1", "text": "new", "content": "more"}\n{"id": "n2", "text": "newer"}\n'
EXAMPLES = b'{"text": "old river", "labels": ["L00", "L01"]}\n{"text": "b", "labels": ["L02"]}\n'


@fuzz
@given(changes=damages, suffix=st.sampled_from(["toml", "json"]))
def test_settings(tmp_path, changes, suffix):
    content = PRESET
    if suffix == "json":
        content = json.dumps({"config": {"train": {"epochs": 3}, "seed": 1}}).encode()
    file = tmp_path / f"preset.{suffix}"
    file.write_bytes(damaged(content, changes))
    with contextlib.suppress(UmpteenError):
        load_config(str(file))


@fuzz
@given(changes=damages)
def test_studies(tmp_path, changes):
    (tmp_path / "study.toml").write_bytes(damaged(STUDY, changes))
    with contextlib.suppress(UmpteenError):
        read_study(tmp_path / "study.toml")


@fuzz
@given(changes=damages)
def test_predictions(changes):
    with contextlib.suppress(UmpteenError):
        labels = LabelSet(["a", "b"], ["a", "b"])
        read_predictions(io.BytesIO(damaged(PREDICTIONS, changes)), labels, 2)


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    return shutil.copytree(tiny_run, tmp_path_factory.mktemp("inputs") / "run")


@fuzz
@given(changes=damages)
@pytest.mark.parametrize(
    ("command", "content"),
    [
        (["labels", "add", "RUN", "--file", "FILE"], LABELS),
        (["examples", "add", "RUN", "FILE"], EXAMPLES),
    ],
)
def test_files_of_changes(run, tmp_path, command, content, changes):
    (tmp_path / "file").write_bytes(damaged(content, changes))
    names = {"RUN": str(run), "FILE": str(tmp_path / "file")}
    done = CliRunner().invoke(main, [names.get(word, word) for word in command])
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert CliRunner().invoke(main, ["repair", str(run), "--json"]).stdout == (
        '{\n  "damaged": false\n}\n'
    )


@fuzz
@given(changes=damages, which=st.sampled_from(["config.json", "model.safetensors"]))
def test_encoders(tiny_bert, tmp_path, changes, which):
    folder = tmp_path / "encoder"
    if not folder.exists():
        shutil.copytree(tiny_bert, folder)
    (folder / which).write_bytes(damaged((tiny_bert / which).read_bytes(), changes))
    try:
        with contextlib.suppress(UmpteenError):
            TransformerEncoder.load(folder, {})
    finally:
        shutil.copyfile(tiny_bert / which, folder / which)


@fuzz
@given(changes=damages)
def test_approximate_indexes(tmp_path, changes):
    pytest.importorskip("faiss")
    import numpy as np

    from umpteen.index.faiss_index import FaissIndex

    folder = tmp_path / "index"
    if not folder.exists():
        vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
        FaissIndex.build(vectors, factory="IVF4,Flat").save(folder)
    original = (folder / "labels.faiss").read_bytes()
    (folder / "labels.faiss").write_bytes(damaged(original, changes))
    try:
        with contextlib.suppress(UmpteenError):
            FaissIndex.load(folder).search(np.ones((2, 8), np.float32), 3)
    finally:
        (folder / "labels.faiss").write_bytes(original)


@pytest.fixture(scope="module")
def stopped(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("stopped") / "run"
    stop_at(3, tiny_data, run)
    return run


@settings(fuzz, max_examples=10)
@given(changes=damages, number=st.integers(0, 100))
def test_checkpoints(stopped, tiny_data, tmp_path, changes, number):
    """The newest ones: with all damaged the run is refused, with one it goes on."""
    run = shutil.copytree(stopped, tmp_path / "run")
    try:
        files = sorted(file for place in checkpoints(run) for file in place.iterdir())
        victim = files[number % len(files)]
        victim.write_bytes(damaged(victim.read_bytes(), changes))
        with contextlib.suppress(UmpteenError):
            fit(tiny_data, run, resume=True)
    finally:
        shutil.rmtree(run)
