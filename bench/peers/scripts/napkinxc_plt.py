"""napkinXC: a probabilistic label tree, default settings."""

from __future__ import annotations

import tempfile

import numpy as np
from exchange import arguments, read, timed, write
from napkinxc.models import PLT


def main() -> None:
    args = arguments(__doc__)
    train, test, targets = read(args.folder)
    rows = np.full((test.shape[0], args.k), -1, np.int64)
    scores = np.full((test.shape[0], args.k), -np.inf, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, threads=args.threads, seed=1)
        with timed("train"):
            model.fit(train, targets)
        with timed("predict"):
            answers = model.predict_proba(test, top_k=args.k)
    for row, found in enumerate(answers):
        rows[row, : len(found)] = [label for label, _ in found]
        scores[row, : len(found)] = [score for _, score in found]
    write(args.out, rows, scores)


if __name__ == "__main__":
    main()
