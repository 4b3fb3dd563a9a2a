"""umpteen assigns the few right labels out of umpteen to a piece of text.

The public names below are imported on first use, so that ``import umpteen`` costs nothing.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umpteen.config.loading import load_config
    from umpteen.data.dataset import Dataset
    from umpteen.data.formats import load_dataset
    from umpteen.data.labels import LabelSet
    from umpteen.evaluation import evaluate
    from umpteen.predictor import Predictor
    from umpteen.training.api import train
    from umpteen.training.rerank_stage import rerank
    from umpteen.training.start import start
    from umpteen.types import TopK

__version__ = "0.1.0"

_PUBLIC = {
    "Dataset": "umpteen.data.dataset",
    "LabelSet": "umpteen.data.labels",
    "Predictor": "umpteen.predictor",
    "TopK": "umpteen.types",
    "evaluate": "umpteen.evaluation",
    "load_config": "umpteen.config.loading",
    "load_dataset": "umpteen.data.formats",
    "rerank": "umpteen.training.rerank_stage",
    "start": "umpteen.training.start",
    "train": "umpteen.training.api",
}

__all__ = [
    "Dataset",
    "LabelSet",
    "Predictor",
    "TopK",
    "__version__",
    "evaluate",
    "load_config",
    "load_dataset",
    "rerank",
    "start",
    "train",
]


# The library never prints: without a handler of the program's own, warnings would go to stderr.
logging.getLogger("umpteen").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'umpteen' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
