"""Approximate search over a run's labels, and how much of the exact answer it finds.

    python faiss_search.py RUN TEXT [FACTORY]

``umpteen index RUN --kind faiss`` does it for good; this shows the parts. Needs the extra faiss.
"""

import sys

import umpteen
from umpteen.index.exact import ExactIndex
from umpteen.index.faiss_index import FaissIndex
from umpteen.index.recall import recall


def main(run: str, text: str, factory: str = "HNSW32") -> None:
    model = umpteen.Predictor.load(run, device="cpu", with_indexes=False)
    vectors = model.label_vectors.numpy("combined")  # (L, 2 D), both heads side by side
    fast, exact = FaissIndex.build(vectors, factory=factory), ExactIndex.build(vectors)

    queries = model.vectors(model.labels.texts[:100])  # some texts to measure with
    k = min(10, len(model.labels))
    print(f"{factory}: {100 * recall(fast, exact, queries, k):.1f}% of the exact top {k}")

    top = fast.search(model.vectors([text]), k)
    for row, score in zip(top.rows[0].tolist(), top.scores[0].tolist(), strict=True):
        if row >= 0:
            print(f"{score:6.2f}  {model.labels.ids[row]}  {model.labels.texts[row]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
