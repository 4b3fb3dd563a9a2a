"""tf-idf of words: one- and two-word terms for titles, single words with contents."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from exchange import arguments
from sklearn.feature_extraction.text import TfidfVectorizer


def main() -> None:
    args = arguments(__doc__)
    longest = 2 if args.variant == "title" else 1
    rare = 1 if longest == 2 else 2  # words of one document alone, where documents are long
    vectorizer = TfidfVectorizer(
        ngram_range=(1, longest), sublinear_tf=True, dtype=np.float32, min_df=rare
    )
    train = (args.folder / "train.txt").read_text("utf-8").splitlines()
    test = (args.folder / "test.txt").read_text("utf-8").splitlines()
    sp.save_npz(args.folder / "train_x.npz", vectorizer.fit_transform(train).tocsr())
    sp.save_npz(args.folder / "test_x.npz", vectorizer.transform(test).tocsr())


if __name__ == "__main__":
    main()
