"""Encoders and losses beside each other: the frugal preset, or UniDEC with a transformer.

    python -m bench training variants DATA [--encoder FOLDER] [--only unidec] [--set key=value ...]
        [--device auto] [--out rows.json]

Without an encoder: bag of tokens, convolution, and a random token table, on any CPU. With a Hugging
Face folder such as all-MiniLM-L6-v2: UniDEC with both heads, the same with SupCon, each head alone.
Titles only.
"""

from __future__ import annotations

import argparse

from bench.common import options
from bench.common.training_runs import Variant, run_table

FRUGAL = {
    "bag": [],
    "convolution": ["encoder.name=convolution"],
    "bag, random table": ["encoder.table=random"],
}
TRANSFORMER = {
    "unidec": ("unidec", []),
    "unidec, SupCon": ("unidec", ["loss.dual=softmax", "loss.classifier=softmax"]),
    "depsl": ("depsl", []),
    "supcon-de": ("supcon-de", []),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    parser.add_argument("--encoder", help="a Hugging Face folder")
    parser.add_argument("--only", nargs="*", help="names of variants")
    options.add_settings(parser)
    options.add_device(parser)
    options.add_out(parser)


def variants(encoder: str | None, settings: list[str]) -> list[Variant]:
    """Heads are compared with a transformer; what the ensemble adds has its own table."""
    if encoder is None:
        shared = ["data.text=title", *settings]
        return [Variant(name, "unidec-frugal", [*shared, *own]) for name, own in FRUGAL.items()]
    shared = ["data.text=title", "ensemble.enabled=off", f"encoder.name={encoder}", *settings]
    return [Variant(name, preset, [*shared, *own]) for name, (preset, own) in TRANSFORMER.items()]


def main(args: argparse.Namespace) -> None:
    from umpteen import load_dataset

    chosen = variants(args.encoder, args.settings)
    if args.only:
        unknown = set(args.only) - {variant.name for variant in chosen}
        if unknown:
            names = ", ".join(variant.name for variant in chosen)
            raise SystemExit(f"--only {', '.join(unknown)}: the variants are {names}")
        chosen = [variant for variant in chosen if variant.name in args.only]
    device = args.device if args.encoder else "cpu"
    run_table(chosen, load_dataset(args.data), device=device, out=args.out)
