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
SAME = 0.02
"""Points by which a kept difference may miss that of its results: queries are in half precision."""


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
        """Whether the difference is larger than queries and seeds vary.

        All seeds agree on the sign, p is below 0.01, and the mean is more than twice its standard
        error between seeds. False with fewer than three seeds.
        """
        if len(self.by_seed) < 3 or self.p >= 0.01:
            return False
        signs = {value > 0 for value in self.by_seed}
        error = np.std(self.by_seed, ddof=1) / np.sqrt(len(self.by_seed))
        return len(signs) == 1 and abs(self.mean) > 2 * float(error)


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
        A difference for each metric, in the order of the study; a kept one where the values of
        queries are gone and both results are as they were.
    """
    base = against.removeprefix(PRESET)
    return [each for each in all_differences(study, out, against) if each.against == base]


def all_differences(study: Study, out: str | Path, against: str) -> list[Difference]:
    """Return those of ``differences`` and the kept ones against other switches."""
    out = Path(out)
    found = {_place(each): each for each in _differences(study, out, against)}
    for each in _kept(study, out):
        new = found.get(_place(each))
        if new is None or len(new.by_seed) < len(each.by_seed):
            found[_place(each)] = each
    order = {key: at for at, key in enumerate(_results(study, out))}
    return sorted(
        found.values(),
        key=lambda each: (each.against, order[each.data, each.preset, each.switch]),
    )


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


def _place(each: Difference) -> tuple[str, ...]:
    return each.data, each.preset, each.switch, each.against, each.head, each.metric


def _kept(study: Study, out: Path) -> list[Difference]:
    """Return the kept differences that are still those of the results."""
    if not (out / KEPT).is_file():
        return []
    kept = [
        Difference(**{**each, "by_seed": tuple(each["by_seed"])})
        for each in read_json(out / KEPT, error=RunError)
    ]
    results = _results(study, out)
    old = {_place(each)[:-1] for each in kept if not _is_current(each, results, study.head)}
    return [each for each in kept if _place(each)[:-1] not in old]


def _results(study: Study, out: Path) -> dict[tuple[str, str, str], dict[int, dict[str, Any]]]:
    """Return the results that are there, by data, preset and switch, then by seed."""
    found: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for run in study.runs():
        if result_file(out, run).is_file():
            place = (run.source.name, run.preset, run.switch.name)
            found.setdefault(place, {})[run.seed] = read_json(result_file(out, run), error=RunError)
    return found


def _is_current(
    each: Difference,
    results: dict[tuple[str, str, str], dict[int, dict[str, Any]]],
    wanted: str,
) -> bool:
    """Return whether the results of both sides, seed by seed, have the kept differences."""
    own = results.get((each.data, each.preset, each.switch), {})
    # "against" is a switch of the same preset, or a preset.
    theirs = results.get((each.data, each.preset, each.against)) or next(
        (runs for key, runs in results.items() if key[:2] == (each.data, each.against)), {}
    )
    values = [
        _metric(own[seed], wanted, each.metric) - _metric(theirs[seed], wanted, each.metric)
        for seed in own
        if seed in theirs
    ]
    return bool(values) and all(
        any(abs(value - other) <= SAME for other in values) for value in each.by_seed
    )


def _metric(result: dict[str, Any], wanted: str, metric: str) -> float:
    heads = result["heads"]
    return float(heads[best_head(heads, wanted)]["metrics"].get(metric, np.nan))


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
