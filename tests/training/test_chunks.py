"""Runs whose texts are read in chunks: trained, resumed, evaluated and answered alike."""

import json

import numpy as np
import pytest
import torch
from small_runs import fit, outcome, stop_at

from umpteen.data.tokens import encode, tokenize
from umpteen.evaluation import evaluate
from umpteen.model.chunked import ChunkedEncoder
from umpteen.predictor import Predictor

CHUNKS = ("data.max_tokens=5", "data.chunks=3", "train.epochs=2")
CASES = {
    "bag": (),
    "transformer": ("encoder.name=TINY_BERT",),
    "all labels, cached gradients": ("pool.scope=all", "pool.chunk_tokens=40"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_in_chunks_goes_on_to_the_same_bytes(case, tiny_data, tiny_bert, tmp_path):
    changes = [c.replace("TINY_BERT", str(tiny_bert)) for c in (*CHUNKS, *CASES[case])]
    fit(tiny_data, tmp_path / "whole", *changes, "train.checkpoint_seconds=0")
    stop_at(4, tiny_data, tmp_path / "stopped", *changes)
    fit(tiny_data, tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_more_chunks_than_a_text_needs_change_nothing(tiny_data, tmp_path):
    for name, chunks in (("one", 1), ("four", 4)):
        fit(tiny_data, tmp_path / name, "data.max_tokens=60", f"data.chunks={chunks}")
    one, four = (outcome(tmp_path / name) for name in ("one", "four"))
    assert one["steps"] == four["steps"]
    assert one["metrics"] == four["metrics"]


def test_prediction_and_evaluation_read_all_chunks(tiny_data, tmp_path):
    run = tmp_path / "run"
    fit(tiny_data, run, *CHUNKS)
    predictor = Predictor.load(run, device="cpu")
    assert isinstance(predictor.model.encoder, ChunkedEncoder)
    assert predictor.text_config.max_tokens == 15
    texts = tiny_data["test"].texts("all")
    tokens = encode(texts, predictor.encoder.tokenizer, max_tokens=15)
    assert np.diff(tokens.offsets).max() > 5  # or this would test nothing
    inner = predictor.model.encoder.inner
    lengths = np.diff(tokens.offsets)
    row = int(lengths.argmax())
    own = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]]
    count = -(-len(own) // 5)
    parts = [own[i * len(own) // count : (i + 1) * len(own) // count] for i in range(count)]
    with torch.no_grad():
        each = [inner(type(tokens)(part, np.array([0, len(part)]))) * len(part) for part in parts]
        mean = torch.stack(each).sum(dim=0) / len(own)
        expected = predictor.model.search_vectors(mean)[0]
    torch.testing.assert_close(predictor.vectors(texts)[row], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(predictor.vectors([texts[row]])[0], expected, rtol=1e-4, atol=1e-5)
    stored = tokenize(texts, predictor.encoder.tokenizer, max_tokens=15, folder=tmp_path / "tokens")
    both = [evaluate(predictor, tiny_data, tokens=t).heads["combined"] for t in (None, stored)]
    assert both[0].values == both[1].values
    settings = json.loads((run / "config.json").read_text())["config"]["data"]
    assert (settings["max_tokens"], settings["chunks"]) == (5, 3)
