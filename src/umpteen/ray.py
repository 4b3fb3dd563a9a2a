"""Bulk prediction on a Ray cluster (extra ``ray``): parquet files in, parquet parts out.

For a Ray data set of your own use ``dataset.map_batches(ArrowPredictor, batch_format="pyarrow")``.
"""

from __future__ import annotations

import logging
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
    data = require("ray.data", extra="ray")
    given = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    place, folder = str(Path(run).absolute()), str(Path(out).absolute())
    asked = {"text_column": text_column, **options}
    parts = plan_parts(place, given, folder, options=asked, rows_per_part=rows_per_part)
    todo = missing_parts(parts, folder)
    logger.info("%d of %d parts to predict", len(todo), len(parts))
    if todo:
        device = "cuda" if gpus_per_worker else "cpu"
        actors = data.ActorPoolStrategy(
            size=min(workers, len(todo)), max_tasks_in_flight_per_actor=1
        )
        tasks = data.from_items([vars(part) for part in todo], override_num_blocks=len(todo))
        predicted = tasks.map_batches(
            PartPredictor,
            fn_constructor_kwargs={"run": place, "out": folder, "device": device, **asked},
            batch_size=1,
            batch_format="pyarrow",
            compute=actors,
            num_cpus=cpus_per_worker,
            num_gpus=gpus_per_worker,
            max_restarts=-1,
            max_task_retries=-1,
        )
        predicted.materialize()
    if lost := missing_parts(parts, folder):
        raise RunError(f"{len(lost)} parts are missing in {out}, first {lost[0].name}; call again")
    return sum(part.rows for part in parts)


class PartPredictor:
    """The actor: loads the run once and writes the predictions of one part after the other."""

    def __init__(self, run: str, out: str, **options: Any) -> None:
        self._predictor = ArrowPredictor(run, **options)
        self._out = out

    def __call__(self, parts: Any) -> Any:
        """Predict the parts of a table; return it."""
        for fields in parts.to_pylist():
            predict_part(self._predictor, Part(**fields), self._out)
        return parts
