"""Arguments that several benchmarks take, each with one meaning."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a data set that `umpteen data check` accepts")


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run that `umpteen train` made")


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, help="write the rows here, as JSON")


def add_text(parser: argparse.ArgumentParser, default: str = "title") -> None:
    parser.add_argument("--text", choices=["title", "all"], default=default, help="what is read")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="KEY=VALUE")


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0)


def add_device(parser: argparse.ArgumentParser, default: str = "auto") -> None:
    parser.add_argument("--device", default=default, help="cpu, cuda, or auto")
