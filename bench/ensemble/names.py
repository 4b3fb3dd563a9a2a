"""Accuracy of runs that start from label names alone, beside the plain cosine.

    python -m bench ensemble names DATA [--encoder FOLDER] [--text title] [--rows 600]
        [--texts 3000] [--ways "names and texts"] [--split test]

A sample of test rows is predicted by ``umpteen.start`` without texts, with unlabelled training
texts, and with self-training on them, and by the cosine of encoded texts and names.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import torch

import umpteen
from umpteen.data.dataset import Dataset, Split

SEED = 23


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a data set with train and test splits")
    parser.add_argument("--encoder", help="a folder; static token vectors by default")
    parser.add_argument("--text", choices=["title", "all"], default="all")
    parser.add_argument("--rows", type=int, default=600, help="rows to predict")
    parser.add_argument("--texts", type=int, default=3000, help="unlabelled training texts")
    parser.add_argument("--ways", nargs="*", help="some of: names, names and texts, self-training")
    parser.add_argument("--split", default="test", help="train: rows that are not among the texts")


def main(options: argparse.Namespace) -> None:
    data = umpteen.load_dataset(options.data)
    train, rng = data["train"], np.random.default_rng(SEED)
    order = rng.permutation(len(train))
    unlabelled = train.select(np.sort(order[: options.texts])).texts(options.text)
    part = data[options.split]
    chosen = order[options.texts :] if options.split == "train" else rng.permutation(len(part))
    rows = part.select(np.sort(chosen[: options.rows]))
    ways = {
        "names": {},
        "names and texts": {"texts": unlabelled, "self_training": False},
        "self-training": {"texts": unlabelled, "self_training": True},
    }
    chosen_ways = options.ways or list(ways)
    for number, (way, given) in enumerate((way, ways[way]) for way in chosen_ways):
        model = umpteen.start(data.labels, encoder=options.encoder, text=options.text, **given)
        if not number:
            report(options, "plain cosine", cosine(model, rows, options.text))
        held = Dataset(data.labels, {"test": rows}, data.propensity, data.name)
        found = umpteen.evaluate(model, held, split="test", metrics=("P@1", "P@5", "R@10"))
        values = dict(found.heads["ensemble"].values)
        error = (found.as_json().get("sets") or {}).get("expected_calibration_error")
        report(options, way, {**values, "calibration error": error})


def cosine(model: umpteen.Predictor, rows: Split, which: str) -> dict[str, float]:
    """Return P@1 of the cosine of encoded texts and names, without any change to either."""
    unit = torch.nn.functional.normalize
    names = unit(model.encoder.encoded(model.labels.encoder_texts(which)), dim=1)
    scores = unit(model.encoder.encoded(rows.texts(which)), dim=1) @ names.T
    if len(rows.filters):
        scores[tuple(torch.from_numpy(rows.filters).T)] = -torch.inf
    best = scores.argmax(dim=1).cpu().numpy().copy()
    right = np.asarray(rows.filtered_targets()[np.arange(len(best)), best]).ravel() > 0
    return {"P@1": 100.0 * float(right.mean())}


def report(options: argparse.Namespace, way: str, values: dict[str, float | None]) -> None:
    encoder = (options.encoder or "static").rstrip("/").rpartition("/")[2]
    about = {"data": options.data.rstrip("/").rpartition("/")[2], "encoder": encoder, "way": way}
    rounded = {key: None if value is None else round(value, 2) for key, value in values.items()}
    print(json.dumps({**about, "split": options.split, **rounded}), flush=True)
