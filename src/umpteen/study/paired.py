"""Differences between runs of a study, paired over test queries and over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json
from umpteen.study.definition import Run, Study
from umpteen.study.outcomes import per_query_file, result_file
from umpteen.study.results import best_head

PAIRED_METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")
PRESET = "preset:"
KEPT = "paired.json"
"""Differences in the folder of a study, since the values of queries are too large to keep."""


@dataclass(frozen=True)
class Difference:
    """A switch minus another in one metric, percent, over the seeds that both have."""

    data: str
    preset: str
    switch: str
    against: str
    head: str
    metric: str
    mean: float
    by_seed: tuple[float, ...]
    p: float
    """Two-sided, of the mean difference over queries, each averaged over seeds."""

    @property
    def is_clear(self) -> bool:
        """Whether all seeds agree on the sign and chance among queries is below one in a hundred.

        False with fewer than three seeds.
        """
        signs = {value > 0 for value in self.by_seed}
        return len(self.by_seed) >= 3 and len(signs) == 1 and self.p < 0.01


def two_sided_p_value(differences: NDArray[Any]) -> float:
    """Return the p-value of a paired t-test that the mean difference is zero.

    Example:
        >>> two_sided_p_value(np.array([1.0, -1.0, 1.0, -1.0]))
        1.0
    """
    if not np.any(differences):
        return 1.0
    if len(differences) < 2 or np.ptp(differences) == 0:
        return 0.0  # the same difference everywhere leaves nothing to chance
    return float(ttest_1samp(differences, 0.0).pvalue)


def differences(study: Study, out: str | Path, against: str) -> list[Difference]:
    """Compare every switch with another one of the same data and preset.

    Args:
        study: The study.
        out: Its folder, with results and the values of queries.
        against: The name of a switch, or ``preset:NAME`` for the runs of a preset.

    Returns:
        A difference for each metric, in the order of the study; those that were kept, where the
        values of queries are gone.
    """
    out = Path(out)
    found = list(_differences(study, out, against))
    if found or not (out / KEPT).is_file():
        return found
    kept = read_json(out / KEPT, error=RunError)
    every = [Difference(**{**each, "by_seed": tuple(each["by_seed"])}) for each in kept]
    return [each for each in every if each.against == against.removeprefix(PRESET)]


def as_json(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Return plain values."""
    return [asdict(each) for each in found]


def table(found: Sequence[Difference]) -> str:
    """Return Markdown: a row for each switch; bold where the difference is clear."""
    columns = ["data", "preset", "switch", "against", "head", *PAIRED_METRICS, "seeds"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    rows: dict[tuple[str, ...], dict[str, Difference]] = {}
    for each in found:
        place = (each.data, each.preset, each.switch, each.against, each.head)
        rows.setdefault(place, {})[each.metric] = each
    for names, own in rows.items():
        cells = [_cell(own[metric]) if metric in own else "" for metric in PAIRED_METRICS]
        seeds = max(len(each.by_seed) for each in own.values())
        lines.append("| " + " | ".join([*names, *cells, str(seeds)]) + " |")
    return "\n".join(lines) + "\n"


def _cell(each: Difference) -> str:
    text = f"{each.mean:+.2f} (p {each.p:.2g})"
    return f"**{text}**" if each.is_clear else text


def _differences(study: Study, out: Path, against: str) -> Iterator[Difference]:
    runs: dict[tuple[str, str, str], list[Run]] = {}
    for run in study.runs():
        if result_file(out, run).is_file() and per_query_file(out, run).is_file():
            runs.setdefault((run.source.name, run.preset, run.switch.name), []).append(run)
    for (data, preset, switch), own in runs.items():
        base = _base(runs, data, preset, against)
        if base is None or base == (data, preset, switch):
            continue
        theirs = {run.seed: run for run in runs[base]}
        pairs = [(run, theirs[run.seed]) for run in own if run.seed in theirs]
        name = base[1] if base[1] != preset else base[2]
        yield from _of_pairs(study, out, pairs, (data, preset, switch, name))


def _base(
    runs: dict[tuple[str, str, str], list[Run]], data: str, preset: str, against: str
) -> tuple[str, str, str] | None:
    """Return the runs to compare with; None where there are none."""
    other = against.removeprefix(PRESET)
    if other != against:
        return next((key for key in runs if key[:2] == (data, other)), None)
    key = (data, preset, against)
    return key if key in runs else None


def _of_pairs(
    study: Study, out: Path, pairs: list[tuple[Run, Run]], place: tuple[str, str, str, str]
) -> Iterator[Difference]:
    if not pairs:
        return
    heads = [best_head(read_json(result_file(out, run))["heads"], study.head) for run in pairs[0]]
    loaded = [(_values(out, a, heads[0]), _values(out, b, heads[1])) for a, b in pairs]
    for metric in PAIRED_METRICS:
        if not all(metric in values for pair in loaded for values in pair):
            continue
        each = np.stack([a[metric] - b[metric] for a, b in loaded])  # (seeds, queries)
        yield Difference(
            *place,
            head=heads[0],
            metric=metric,
            mean=float(each.mean()),
            by_seed=tuple(float(value) for value in each.mean(axis=1)),
            p=two_sided_p_value(each.mean(axis=0)),
        )


def _values(out: Path, run: Run, head: str) -> dict[str, NDArray[np.float64]]:
    """Return the values of a run's test queries by metric."""
    file = per_query_file(out, run)
    try:
        with np.load(file, allow_pickle=False) as found:
            own = [name for name in found.files if name.startswith(f"{head}/")]
            return {name.partition("/")[2]: found[name].astype(np.float64) for name in own}
    except LOAD_ERRORS as error:
        raise RunError(f"{file} is damaged ({error}); remove it and run again") from error
