"""The model card of a run: what it was trained on, its metrics, and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from umpteen.errors import RunError
from umpteen.files import read_json
from umpteen.head_names import ENSEMBLE
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

{metrics}

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
    ensemble, measured_on = _ensemble(folder)
    if ensemble:
        heads = {**heads, ENSEMBLE: ensemble}
    names = [name for name in SHOWN if any(name in values for values in heads.values())]
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
        metrics=_table(heads, names, best.get("epoch"), measured_on),
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


def _ensemble(folder: RunFolder) -> tuple[dict[str, float], str]:
    """Return the metrics of the ensemble and what it was measured on; empty without any."""
    file = folder.ensemble / "ensemble.json"
    if not file.is_file():
        return {}, ""
    about = read_json(file, error=RunError)
    if about.get("model") != folder.model("best").name:
        return {}, ""
    variants = about.get("variants") or [{}]
    return dict(variants[0].get("validation", {})), str(about.get("fitted_on", ""))


def _table(
    heads: dict[str, dict[str, float]], names: list[str], epoch: int | None, measured_on: str
) -> str:
    """Return the metrics of all heads as a table, or a sentence where nothing was measured."""
    if not names:
        return "Nothing was measured: there were too few texts."
    said = [] if epoch is None else [f"best epoch ({epoch})"]
    said += [f"the ensemble, which predicts by default, on {measured_on}"] * (ENSEMBLE in heads)
    lines = [f"Percent; {'; '.join(said)}.", ""]
    lines += [f"| head | {' | '.join(names)} |", f"|---|{'|'.join(['---'] * len(names))}|"]
    for head, values in heads.items():
        cells = [f"{values[name]:.2f}" if name in values else "" for name in names]
        lines.append(f"| {head} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    for name in filter(values.__contains__, names):
        lines += [f"    - type: {_quoted(name)}", f"      value: {values[name]:.2f}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as a YAML string; JSON strings are YAML."""
    import json

    return json.dumps(text, ensure_ascii=False)
