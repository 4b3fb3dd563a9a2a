"""Train on a folder of data, with progress, then compare the heads.

python from_folder.py DATA RUN [key=value ...]
"""

import sys

import umpteen
from umpteen.training.reporters import Terminal

METRICS = ["P@1", "P@5", "PSP@1", "PSP@5", "R@10"]


def main(folder: str, run: str, *settings: str) -> None:
    data = umpteen.load_dataset(folder)
    model = umpteen.train(
        data,
        preset="unidec-frugal",
        overrides=settings,  # such as train.epochs=10, or encoder.name=a-hugging-face-folder
        out=run,
        reporters=[Terminal()],
    )
    report = umpteen.evaluate(model, data, split="test", metrics=METRICS)
    print(f"{'':10}" + "".join(f"{name:>8}" for name in METRICS))
    for head, part in report.heads.items():
        print(f"{head:10}" + "".join(f"{part.values[name]:8.2f}" for name in METRICS))

    # The head is chosen for each call; rows are positions in model.labels.
    question = data["test"].texts(model.text_config.text)[0]
    for head in model.heads:
        print(f"{head}: {model.predict(question, k=3, head=head).texts[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
