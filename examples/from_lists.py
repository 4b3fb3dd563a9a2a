"""Train on Python lists and ask for labels.

python from_lists.py [RUN]
"""

import sys

import umpteen

TEXTS = {
    "cherry": ["small red stone fruit", "fruit of the blossom tree", "red fruit on long stems"],
    "banana": ["long yellow fruit", "curved fruit from the tropics", "yellow fruit to peel"],
    "carrot": ["orange root vegetable", "vegetable that rabbits like", "long orange root"],
    "spinach": ["green leaf vegetable", "leaves rich in iron", "dark green leaves to steam"],
}
LABEL_TEXTS = {
    "cherry": "sweet cherry",
    "banana": "ripe banana",
    "carrot": "garden carrot",
    "spinach": "fresh spinach",
    "fruit": "any fruit",
    "vegetable": "any vegetable",
}


def main(run: str) -> None:
    texts = [text for group in TEXTS.values() for text in group]
    kinds = {"cherry": "fruit", "banana": "fruit", "carrot": "vegetable", "spinach": "vegetable"}
    labels = [[label, kinds[label]] for label, group in TEXTS.items() for _ in group]
    data = umpteen.Dataset.from_lists(
        texts,
        labels,
        label_texts=LABEL_TEXTS,
        test_texts=["yellow tropical fruit", "steamed green leaves"],
        test_labels=[["banana", "fruit"], ["spinach", "vegetable"]],
    )
    model = umpteen.train(data, out=run, overrides=["batches.size=4", "train.epochs=10"])
    top = model.predict(data["test"].texts(), k=2)
    for text, ids, scores in zip(data["test"].texts(), top.ids, top.scores, strict=True):
        answers = ", ".join(f"{name} {score:.2f}" for name, score in zip(ids, scores, strict=True))
        print(f"{text}: {answers}")
    report = umpteen.evaluate(model, data, metrics=["P@1", "R@2"])
    print({head: part.values for head, part in report.heads.items()})


if __name__ == "__main__":
    main(*sys.argv[1:] or ["lists-run"])
