"""Wait for what another process or thread does: by a condition, never for a time."""

import os
import time

PATIENCE = float(os.environ.get("UMPTEEN_TEST_PATIENCE", 180))
"""Seconds for anything that another process is to do: a machine may be busy with other things."""


def until(holds, *, unless=lambda: None):
    """Wait until a condition holds; fail after PATIENCE, or as soon as ``unless`` says something.

    Args:
        holds: The condition; what it returns is returned.
        unless: Returns why the condition can no longer come true, or nothing.
    """
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        why = unless()
        assert not why, why
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)
    return found
