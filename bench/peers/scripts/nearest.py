"""The 20 nearest training texts by tf-idf vote for their labels, weighted by the cosine."""

from __future__ import annotations

import scipy.sparse as sp
from exchange import arguments, read, timed, top, write

NEIGHBOURS, TEXTS_AT_ONCE = 20, 256


def main() -> None:
    args = arguments(__doc__)
    train, test, targets = read(args.folder)
    parts = []
    with timed("train"):
        transposed = train.T.tocsr()
    with timed("predict"):
        for start in range(0, test.shape[0], TEXTS_AT_ONCE):
            near = (test[start : start + TEXTS_AT_ONCE] @ transposed).tocsr()
            rows, cosines = top(near, NEIGHBOURS)
            kept = rows >= 0
            votes = sp.csr_matrix(
                (cosines[kept], (kept.nonzero()[0], rows[kept])), shape=near.shape
            )
            parts.append(votes @ targets)
    write(args.out, *top(sp.vstack(parts), args.k))


if __name__ == "__main__":
    main()
