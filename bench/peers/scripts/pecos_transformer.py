"""PECOS XR-Transformer: a transformer trained along the tree, with tf-idf beside its vectors.

Needs ``--encoder``, a Hugging Face folder of a BERT, RoBERTa, XLNet or DistilBERT model. Default
settings, but for the tokens that are read of a text (``--tokens``): it pads every text to them.
``--epochs`` are trained at each level of the tree, five by default.
"""

from __future__ import annotations

import torch
from exchange import arguments, read, timed, top, write
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText


def main() -> None:
    args = arguments(__doc__)
    torch.set_num_threads(args.threads)
    train, test, targets = read(args.folder)
    texts = (args.folder / "train.txt").read_text("utf-8").splitlines()
    parameters = XTransformer.TrainParams.from_dict({}, recursive=True)
    chain = parameters.matcher_params_chain
    chain.model_shortcut, chain.num_train_epochs = args.encoder, args.epochs
    chain.pre_tokenize, chain.batch_gen_workers = True, 1
    reading = XTransformer.PredParams.from_dict({}, recursive=True)
    reading.matcher_params_chain.truncate_length = args.tokens
    problem = MLProblemWithText(texts, targets.astype("float32"), X_feat=train)
    with timed("train"):
        model = XTransformer.train(problem, train_params=parameters, pred_params=reading)
    queries = (args.folder / "test.txt").read_text("utf-8").splitlines()
    with timed("predict"):
        found = model.predict(queries, X_feat=test, only_topk=args.k, batch_gen_workers=1)
    write(args.out, *top(found, args.k))


if __name__ == "__main__":
    main()
