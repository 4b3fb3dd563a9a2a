"""scikit-learn: tf-idf of words and character n-grams, one linear SVM per label."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from exchange import arguments, timed, write
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion
from sklearn.svm import LinearSVC

TEXTS_AT_ONCE = 512


def vectorizer() -> FeatureUnion:
    """Words 1-2 and characters 3-5 within words, as tutorials combine them."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)
    characters = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, dtype=np.float32
    )
    return FeatureUnion([("words", words), ("characters", characters)])


def main() -> None:
    args = arguments(__doc__)
    train = (args.folder / "train.txt").read_text("utf-8").splitlines()
    test = (args.folder / "test.txt").read_text("utf-8").splitlines()
    targets = sp.load_npz(args.folder / "train_y.npz").tocsr()
    # A label whose training texts are all filter pairs has no positive text and no classifier.
    labels = np.flatnonzero(targets.getnnz(axis=0))
    k = min(args.k, len(labels))
    rows = np.full((len(test), args.k), -1, np.int64)
    scores = np.full((len(test), args.k), -np.inf, np.float32)
    with timed("train"):
        features = vectorizer()
        matrix = features.fit_transform(train).tocsr()
        model = OneVsRestClassifier(LinearSVC(), n_jobs=args.threads)
        # 64-bit targets: with 8-bit ones scikit-learn's label positions overflow at 128.
        model.fit(matrix, targets[:, labels].astype(np.int64))
    with timed("predict"):
        for start in range(0, len(test), TEXTS_AT_ONCE):
            chunk = slice(start, start + TEXTS_AT_ONCE)
            values = model.decision_function(features.transform(test[chunk]).tocsr())
            order = np.argsort(-values, axis=1, kind="stable")[:, :k]
            rows[chunk, :k] = labels[order]
            scores[chunk, :k] = np.take_along_axis(values, order, axis=1)
    write(args.out, rows, scores)


if __name__ == "__main__":
    main()
