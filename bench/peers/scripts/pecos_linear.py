"""PECOS XR-Linear: linear rankers in a tree over clusters of labels, default settings."""

from __future__ import annotations

from exchange import arguments, read, timed, top, write
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def main() -> None:
    args = arguments(__doc__)
    train, test, targets = read(args.folder)
    targets = targets.astype("float32")
    with timed("train"):
        tree = Indexer.gen(LabelEmbeddingFactory.create(targets, train))
        model = XLinearModel.train(train, targets, C=tree, threads=args.threads)
    with timed("predict"):
        found = model.predict(test, only_topk=args.k, beam_size=20, threads=args.threads)
    write(args.out, *top(found, args.k))


if __name__ == "__main__":
    main()
