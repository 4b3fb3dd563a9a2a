"""Kinds of progress lines. Imports nothing, so that commands start fast."""

from __future__ import annotations


class Detail(str):
    """A progress line that few want to read: in ``log.txt``, and shown with ``--verbose``."""

    __slots__ = ()
