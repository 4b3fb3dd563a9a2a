"""The ICD-10-CM data set, built once for every set of options. Tests must not change it."""

import functools
import importlib.util

import pytest

from umpteen.data.sources.icd10 import build as build_anew

build = functools.cache(build_anew)
needs_codes = pytest.mark.skipif(
    importlib.util.find_spec("simple_icd_10_cm") is None, reason="needs simple_icd_10_cm"
)
"""Importing the package reads all codes, which takes seconds: tests import it where they use it."""
