"""Keep fitted weights of corrections between starts; a fit with many takes seconds."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import numpy as np

from umpteen.errors import UmpteenError
from umpteen.files import read_json, write_json
from umpteen.ranking.corrections import N_FEATURES, CorrectionWeights, correction_counts
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.variants import Variant

FILE = "corrections.json"
MIN_CACHED = 1024
"""With fewer corrections the weights are fitted again at every start."""
logger = logging.getLogger(__name__)


class CorrectionCache:
    """The weights of one fit in a file; best effort, so nothing here raises.

    The file is valid for exactly the corrections, the model and the ensemble it was made from.

    Args:
        folder: Where the file is.
        model: Identifies the model and the vocabulary.
        variant: The default variant of the ensemble, which the fit starts from.
    """

    def __init__(self, folder: Path, model: str, variant: Variant) -> None:
        self.file = folder / FILE
        self._about = f"{model} {json.dumps(variant.as_json(), sort_keys=True)}".encode()

    def load(self, snapshot: Snapshot, n: int) -> tuple[CorrectionWeights | None] | None:
        """Return the result of a fit with n corrections, None in a tuple for no weights.

        Returns:
            None where there is no file, or one of another fit.
        """
        if n < MIN_CACHED or not self.file.is_file():
            return None
        try:
            value = read_json(self.file)
            if value["key"] != self._key(snapshot, n):
                return None
            if value["weights"] is None:
                return (None,)
            weights = np.array(value["weights"], np.float64)
            counts = correction_counts(snapshot.examples.stored, n, snapshot.n_labels)
            padded = np.append(counts, 0).astype(np.float32)
            variant = Variant.from_json(value["variant"])
            if weights.shape != (N_FEATURES,) or not (weights >= 0).all():
                raise ValueError("weights of corrections are damaged")
            return (CorrectionWeights(n, weights, padded, variant),)
        except (OSError, UmpteenError, KeyError, TypeError, ValueError) as error:
            logger.warning("The weights of corrections in %s are ignored: %s", self.file, error)
            return None

    def save(self, snapshot: Snapshot, n: int, found: CorrectionWeights | None) -> None:
        """Write the result of a fit, where there are many corrections."""
        if n < MIN_CACHED:
            return
        value = {
            "key": self._key(snapshot, n),
            "weights": None if found is None else found.weights.tolist(),
            "variant": None if found is None else found.variant.as_json(),
        }
        try:
            self.file.parent.mkdir(exist_ok=True)
            write_json(self.file, value)
        except OSError as error:  # a folder that cannot be written to, or a full disk
            logger.info("The weights of corrections are not kept in %s: %s", self.file, error)

    def _key(self, snapshot: Snapshot, n: int) -> str:
        """Return a digest of everything that a fit with n corrections depends on."""
        stored = snapshot.examples.stored
        digest = hashlib.sha256(self._about)
        digest.update(b"".join(stored.digests[:n]))
        for part in stored.label_rows(0, n):
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()
