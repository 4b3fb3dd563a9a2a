"""The lock of a run in training: two trainings never write to the same folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from umpteen.compute.distributed.sharding import Ranks
from umpteen.errors import RunError
from umpteen.locks import exclusive_folder
from umpteen.run_folder import RunFolder


@contextlib.contextmanager
def training_lock(folder: RunFolder, ranks: Ranks, *, resume: bool) -> Iterator[None]:
    """Hold the folder of a run for this job alone; call on all ranks.

    Args:
        folder: The run. A new one is made, and must be empty once it is locked.
        ranks: Who trains; the first one holds the lock.
        resume: Whether a run is continued, and the folder need not be empty.

    Yields:
        Nothing.

    Raises:
        RunError: If another training writes to the folder, or something is in the way.
    """
    with contextlib.ExitStack() as stack:
        problem = ""
        # Where there is nothing to resume, no folder is made either.
        if ranks.first and (not resume or folder.path.is_dir()):
            try:
                if not resume:
                    folder.require_empty()
                stack.enter_context(exclusive_folder(folder.path, busy=folder.busy()))
                if not resume:  # another training may have come and gone since
                    folder.require_empty()
            except (RunError, OSError) as error:
                problem = str(error)
        problem = ranks.json_from_first(problem)
        if problem:
            raise RunError(problem)
        yield
