"""A run folder with an encoder as it came, for timings that do not depend on what was learnt.

    python -m bench serving untrained-run ENCODER DATA OUT [--random-labels]

ENCODER is a Hugging Face folder; it gets two heads of 256. Titles are read, and the label vectors
of both heads are those of the label titles, or random ones, which take no encoding: an exact search
takes as long with either. Test queries become the run's examples.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from bench.common import options
from umpteen import load_dataset
from umpteen.data.tokens import TokenStore, encode
from umpteen.model.model import Model
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.storage import TextConfig, save_model
from umpteen.model.transformer import TransformerEncoder
from umpteen.model.vectors import query_search_vectors
from umpteen.run_folder import RunFolder


def untrained(folder, data, *, random_labels=False):
    """Model, tokenizer, reading and the label vectors of both heads, side by side."""
    torch.manual_seed(0)
    encoder = TransformerEncoder(load_network(folder))
    heads = ("dual", "classifier")
    model = Model(encoder, heads=heads, dim=256, n_labels=len(data.labels)).eval()
    tokenizer = load_tokenizer(folder)
    text_config = TextConfig("title", 32, data.labels.fingerprint)
    if random_labels:
        vectors = torch.nn.functional.normalize(torch.randn(len(data.labels), 2, 256), dim=2)
        return model, tokenizer, text_config, vectors.flatten(1).numpy()
    tokens = encode(data.labels.encoder_texts("title"), tokenizer, max_tokens=32)
    vectors = query_search_vectors(model, TokenStore(tokens.ids, tokens.offsets)).numpy()
    return model, tokenizer, text_config, vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoder", help="a Hugging Face folder")
    options.add_data(parser)
    parser.add_argument("out", type=Path)
    parser.add_argument("--random-labels", action="store_true")


def main(given: argparse.Namespace) -> None:
    data = load_dataset(given.data)
    model, tokenizer, text_config, vectors = untrained(
        given.encoder, data, random_labels=given.random_labels
    )
    place = RunFolder(given.out)
    place.path.mkdir(parents=True)
    place.write_labels(data.labels, np.zeros(len(data.labels), np.int64))
    dim = model.dim
    model.label_vectors = torch.nn.Parameter(torch.from_numpy(vectors[:, dim:].copy()))
    save_model(place.models / "epoch-0001", model, tokenizer, text_config, vectors=vectors)
    place.config.write_text(json.dumps({"config": {}}))
    (place.path / "models.json").write_text(json.dumps({"best": "models/epoch-0001"}))
    texts = data["test"].texts("title")[:1000]
    lines = [json.dumps({"text": text}) for text in texts]
    (place.path / "examples.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
