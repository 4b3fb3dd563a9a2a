"""The model card of a run: what it was trained on, its metrics, and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.run_folder import RunFolder

TASK = "text-classification"
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@100")
CARD = """---
library_name: umpteen
pipeline_tag: {task}
tags:
- umpteen
- multi-label
- extreme-classification
{index}---

# {name}

This model assigns the few right labels out of {labels:,} to a text. It was trained with
umpteen {version} on the data set *{data}*.

## Use

```sh
pip install umpteen
```

```python
import umpteen

model = umpteen.Predictor.from_pretrained("{repository}")
top = model.predict(["a text"], k=5)  # .ids, .texts, .scores
```

Intended for texts like those it was trained on. Scores of the ensemble are probabilities that were
calibrated on validation texts; on other texts, measure them first (`umpteen evaluate`). The model
has no knowledge of labels beyond their texts and examples, and repeats errors of its training data.

## Training data

| | |
|---|---|
| training texts | {texts:,} |
| labels | {labels:,} |
| labels with a training text | {seen:,} |
| median training texts of these | {median:g} |

## Metrics on validation

Percent, best epoch ({epoch}).

| head | {columns} |
|---|{rule}|
{rows}

## Model

| | |
|---|---|
| encoder | {encoder} |
| heads | {heads} |
| text read | {text}, up to {tokens} tokens |
"""


def model_card(run: str | Path, repository: str) -> str:
    """Return the model card of a run, as Markdown with metadata for the Hugging Face hub.

    Args:
        run: The run folder.
        repository: The name it has on the hub.

    Returns:
        The card.

    Raises:
        RunError: If the run is not complete.
    """
    folder = RunFolder(run).require()
    about: dict[str, Any] = read_json(folder.config, error=RunError)
    settings = folder.read_settings()
    _, counts = folder.read_labels()
    best = _best(folder)
    heads: dict[str, dict[str, float]] = best.get("heads", {})
    names = [name for name in SHOWN if any(name in values for values in heads.values())]
    cells = [
        [head, *(f"{values.get(name, 0.0):.2f}" for name in names)]
        for head, values in heads.items()
    ]
    rows = [f"| {' | '.join(line)} |" for line in cells]
    seen = counts[counts > 0]
    encoder = settings.get("encoder", {})
    data = settings.get("data", {})
    return CARD.format(
        task=TASK,
        index=_index(repository, about, heads, names),
        name=repository.rpartition("/")[2],
        repository=repository,
        version=about.get("umpteen", ""),
        data=about.get("data", {}).get("name", "unknown"),
        texts=folder.n_train(),
        labels=len(counts),
        seen=len(seen),
        median=float(np.median(seen)) if len(seen) else 0,
        epoch=best.get("epoch", "none"),
        columns=" | ".join(names) or "none",
        rule="|".join(["---"] * max(1, len(names))),
        rows="\n".join(rows),
        encoder=Path(str(encoder.get("name", ""))).name,
        heads=", ".join(settings.get("model", {}).get("heads", [])),
        text={"title": "titles"}.get(data.get("text", ""), "titles and contents"),
        tokens=data.get("max_tokens", ""),
    )


def _best(folder: RunFolder) -> dict[str, Any]:
    """Return the validation entry of the best epoch; empty where nothing was validated."""
    if not folder.metrics.is_file():
        return {}
    found = read_json(folder.metrics, error=RunError).get("validation", [])
    return max(found, key=lambda each: each.get("value") or 0.0, default={})


def _index(
    repository: str, about: dict[str, Any], heads: dict[str, dict[str, float]], names: list[str]
) -> str:
    """Return the metrics of the last head as the hub's model-index; none without metrics."""
    if not heads or not names:
        return ""
    data = str(about.get("data", {}).get("name", "unknown"))
    values = list(heads.values())[-1]
    lines = [
        "model-index:",
        f"- name: {_quoted(repository.rpartition('/')[2])}",
        "  results:",
        "  - task:",
        f"      type: {TASK}",
        "    dataset:",
        f"      name: {_quoted(data)}",
        f"      type: {_quoted(data)}",
        "      split: validation",
        "    metrics:",
    ]
    for name in names:
        lines += [f"    - type: {_quoted(name)}", f"      value: {values.get(name, 0.0):.2f}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a YAML string; JSON strings are YAML."""
    import json

    return json.dumps(text, ensure_ascii=False)
