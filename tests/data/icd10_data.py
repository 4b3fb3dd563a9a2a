"""The ICD-10-CM data set, built once for every set of options. Tests must not change it."""

import functools

from umpteen.data.sources.icd10 import build as build_anew

build = functools.cache(build_anew)
