"""Data sets made from packages on this machine: one file per source, each with ``build(...)``.

``build`` takes plain options and returns a Dataset, which the caller writes to disk, or an object
that writes itself in pieces: ``write(folder, log=...)`` returns a sentence.
"""

from __future__ import annotations

SOURCES = {
    "debian": "umpteen.data.sources.debian:build",
    "debtags": "umpteen.data.sources.debtags:build",
    "icd10": "umpteen.data.sources.icd10:build",
    "synthetic": "umpteen.data.sources.synthetic:build",
    "wordnet": "umpteen.data.sources.wordnet:build",
}

SUMMARIES = {
    "debian": "Debian packages and what they depend on, recommend and suggest (apt's lists)",
    "debtags": "descriptions of Debian packages and their debtags (apt's lists)",
    "icd10": "clinical terms and their ICD-10-CM codes (PyPI package simple-icd-10-cm)",
    "synthetic": "procedural texts and labels of any size, written in pieces",
    "wordnet": "WordNet synsets and the synsets they are related to (Debian's wordnet-base)",
}
