"""UniDEC with a transformer on one GPU: both heads, each alone, and its neighbours.

    python bench/wordnet_gpu.py DATA ENCODER [--only unidec] [--set key=value ...] [--out rows.json]

DATA is WordNet-Related (or what ``umpteen data build wordnet`` makes), ENCODER a Hugging Face
folder such as all-MiniLM-L6-v2. Titles only.
"""

from __future__ import annotations

import argparse

from training_table import Variant, run_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("encoder")
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out")
    args = parser.parse_args()
    # Heads are compared here; what the ensemble adds has its own table.
    shared = ["data.text=title", "ensemble.enabled=off", f"encoder.name={args.encoder}"]
    shared += args.settings
    softmax = ["loss.dual=softmax", "loss.classifier=softmax"]
    variants = [
        Variant("unidec", "unidec", shared),
        Variant("unidec, SupCon", "unidec", [*shared, *softmax]),
        Variant("depsl", "depsl", shared),
        Variant("supcon-de", "supcon-de", shared),
    ]
    if args.only:
        variants = [v for v in variants if v.name in args.only]
    from umpteen import load_dataset

    run_table(variants, load_dataset(args.data), device=args.device, out=args.out)


if __name__ == "__main__":
    main()
