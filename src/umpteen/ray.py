"""Bulk prediction on a Ray cluster (extra ``ray``): parquet files in, parquet parts out.

For a Ray data set of your own use ``dataset.map_batches(ArrowPredictor, batch_format="pyarrow")``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from umpteen.arrow_predictions import ArrowPredictor, Part, missing_parts, plan_parts, predict_part
from umpteen.errors import RunError
from umpteen.extras import require

logger = logging.getLogger(__name__)

__all__ = ["ArrowPredictor", "predict_files"]


def predict_files(
    run: str | Path,
    inputs: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    workers: int = 2,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
    rows_per_part: int = 100_000,
    text_column: str | Sequence[str] = "text",
    **options: Any,
) -> int:
    """Predict all rows of parquet files on a Ray cluster.

    Each worker loads the run once. Parts are predicted in any order and written as
    ``OUT/part-000000.parquet`` and so on, whole or not at all. A worker that dies is started again.
    Call the function again after an interruption: parts that are there are left alone.

    Args:
        run: The run folder, at a path that all nodes can read.
        inputs: Parquet files, or folders of them, at paths that all nodes can read.
        out: The folder of the predictions.
        workers: Number of actors.
        cpus_per_worker: Cores of an actor.
        gpus_per_worker: GPUs of an actor.
        rows_per_part: Rows of a part, at least one row group of the input.
        text_column: The column with the texts; several are joined with a space.
        **options: Of ``Predictor.predict``: ``k``, ``head``, ``threshold``, ``without``.

    Returns:
        The rows of all parts.
    """
    ray = require("ray", extra="ray")
    given = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    place, folder = str(Path(run).absolute()), str(Path(out).absolute())
    asked = {"text_column": text_column, **options}
    parts = plan_parts(place, given, folder, options=asked, rows_per_part=rows_per_part)
    todo = missing_parts(parts, folder)
    logger.info("%d of %d parts to predict", len(todo), len(parts))
    if todo:
        device = "cuda" if gpus_per_worker else "cpu"
        threads = str(max(1, math.floor(cpus_per_worker)))
        # Plain actors: each process of Ray Data takes seconds of a core to start.
        actor = ray.remote(PartPredictor).options(
            num_cpus=cpus_per_worker,
            num_gpus=gpus_per_worker,
            max_restarts=-1,
            max_task_retries=-1,
            runtime_env={"env_vars": {"RAYON_NUM_THREADS": threads}},  # of the tokenizer
        )
        n = min(workers, len(todo))
        _predict(ray, [actor.remote(place, folder, device=device, **asked) for _ in range(n)], todo)
    if lost := missing_parts(parts, folder):
        raise RunError(f"{len(lost)} parts are missing in {out}, first {lost[0].name}; call again")
    return sum(part.rows for part in parts)


def _predict(ray: Any, actors: list[Any], todo: list[Part]) -> None:
    """Give each actor that is ready one part after the other."""
    waiting = {actor.__ray_ready__.remote(): actor for actor in actors}
    left, working = iter(todo), set[Any]()
    part = next(left, None)
    while waiting and (part is not None or working):
        done = ray.wait(list(waiting), num_returns=1)[0][0]
        ray.get(done)
        actor = waiting.pop(done)
        working.discard(done)
        if part is not None:
            task = actor.predict.remote(vars(part))
            waiting[task] = actor
            working.add(task)
            part = next(left, None)


class PartPredictor:
    """The actor: loads the run once and writes the predictions of one part after the other."""

    def __init__(self, run: str, out: str, **options: Any) -> None:
        self._predictor = ArrowPredictor(run, **options)
        self._out = out

    def predict(self, part: dict[str, Any]) -> int:
        """Write the predictions of a part; return its rows."""
        return predict_part(self._predictor, Part(**part), self._out)
