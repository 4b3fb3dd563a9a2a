"""The frugal default on two CPU cores, no download: bag of tokens and convolutions.

    python bench/mdn_cpu.py DATA [--only bag] [--set key=value ...] [--out rows.json]

DATA is MDN-SeeAlso, or any data set with titles. Titles only.
"""

from __future__ import annotations

import argparse

from training_table import Variant, run_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument("--out")
    args = parser.parse_args()
    shared = ["data.text=title", *args.settings]
    preset = "unidec-frugal"
    variants = [
        Variant("bag", preset, shared),
        Variant("convolution", preset, [*shared, "encoder.name=convolution"]),
        Variant("bag, random table", preset, [*shared, "encoder.table=random"]),
    ]
    if args.only:
        variants = [v for v in variants if v.name in args.only]
    from umpteen import load_dataset

    run_table(variants, load_dataset(args.data), device="cpu", out=args.out)


if __name__ == "__main__":
    main()
