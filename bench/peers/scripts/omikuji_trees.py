"""omikuji: Parabel (balanced binary trees) or Bonsai (shallow, wide trees), default settings."""

from __future__ import annotations

import numpy as np
import omikuji
from exchange import arguments, read, timed, write


def bonsai() -> omikuji.Model:
    parameters = omikuji.Model.default_hyper_param()
    parameters.cluster_balanced = False
    parameters.cluster_k = 100
    parameters.max_depth = 3
    parameters.min_branch_size = 100  # as its documentation gives for Bonsai
    return parameters


def svm_lines(path, features, targets) -> None:
    """The text format its loader reads."""
    with path.open("w") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {targets.shape[1]}\n")
        for row in range(features.shape[0]):
            labels = ",".join(
                map(str, targets.indices[targets.indptr[row] : targets.indptr[row + 1]])
            )
            part = slice(features.indptr[row], features.indptr[row + 1])
            pairs = zip(features.indices[part], features.data[part], strict=True)
            file.write(labels + "".join(f" {i}:{v:.6g}" for i, v in pairs) + "\n")


def main() -> None:
    args = arguments(__doc__)
    train, test, targets = read(args.folder)
    path = args.folder / "train.svm"
    if not path.is_file():
        svm_lines(path, train, targets)
    parameters = bonsai() if args.variant == "bonsai" else omikuji.Model.default_hyper_param()
    with timed("train"):
        model = omikuji.Model.train_on_data(str(path), parameters, n_threads=args.threads)
    rows = np.full((test.shape[0], args.k), -1, np.int64)
    scores = np.full((test.shape[0], args.k), -np.inf, np.float32)
    with timed("predict"):
        for row in range(test.shape[0]):
            part = slice(test.indptr[row], test.indptr[row + 1])
            pairs = list(zip(test.indices[part].tolist(), test.data[part].tolist(), strict=True))
            found = model.predict(pairs, top_k=args.k)
            rows[row, : len(found)] = [label for label, _ in found]
            scores[row, : len(found)] = [score for _, score in found]
    write(args.out, rows, scores)


if __name__ == "__main__":
    main()
