"""PECOS XR-Transformer: a transformer trained along the tree, with tf-idf beside its vectors.

Needs ``--encoder``, a Hugging Face folder of a BERT, RoBERTa, XLNet or DistilBERT model.
"""

from __future__ import annotations

from exchange import arguments, read, timed, top, write
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText


def main() -> None:
    args = arguments(__doc__)
    train, test, targets = read(args.folder)
    texts = (args.folder / "train.txt").read_text("utf-8").splitlines()
    parameters = XTransformer.TrainParams.from_dict({}, recursive=True)
    parameters.matcher_params_chain.model_shortcut = args.encoder
    problem = MLProblemWithText(texts, targets.astype("float32"), X_feat=train)
    with timed("train"):
        model = XTransformer.train(problem, train_params=parameters)
    queries = (args.folder / "test.txt").read_text("utf-8").splitlines()
    with timed("predict"):
        found = model.predict(queries, X_feat=test, only_topk=args.k)
    write(args.out, *top(found, args.k))


if __name__ == "__main__":
    main()
