"""Progress of a training that Python code started: logging, a terminal or a notebook."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from umpteen.display import html_progress
from umpteen.log_lines import Detail
from umpteen.training.loop import StepInfo
from umpteen.training.reporters import Reporter, Silent, Terminal

logger = logging.getLogger("umpteen.training")
SECONDS = 0.5
"""Between two updates of a notebook."""
LINES = 12
"""The last log lines that a notebook shows."""


def progress_reporters(progress: bool | None) -> list[Reporter]:
    """Return the reporters of ``umpteen.train``.

    Returns:
        One that writes to ``logging`` and, where progress is shown, one that shows it.
    """
    notebook = in_notebook()
    if progress is None:
        progress = notebook or sys.stderr.isatty()
    shown: list[Reporter] = []
    if progress:
        shown.append(Notebook() if notebook else Bar())
    return [LogLines(), *shown]


def in_notebook() -> bool:
    """Return whether the process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class LogLines(Silent):
    """Write log lines and validations to the logger ``umpteen.training``."""

    def log(self, text: str) -> None:
        """Write a line: as a warning where it begins so, details for debugging."""
        if text.startswith("Warning: "):
            logger.warning("%s", text.removeprefix("Warning: "))
        else:
            logger.log(logging.DEBUG if isinstance(text, Detail) else logging.INFO, "%s", text)

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Write the metrics of the head that counts."""
        head, values = list(metrics.items())[-1]
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        logger.info("Epoch %d: %s %s%s", epoch, head, numbers, " (best so far)" if best else "")


class Bar(Terminal):
    """A progress bar; log lines are printed unless logging shows them already."""

    def log(self, text: str) -> None:
        """Print a line above the bar."""
        if not logger.isEnabledFor(logging.INFO):
            super().log(text)


class Notebook(Silent):
    """A progress bar and the last log lines in the output of a notebook cell."""

    shows_steps = True

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._output = display(HTML(""), display_id=True)
        self._lines: list[str] = []
        self._n_epochs = 0
        self._epoch = 0.0
        self._numbers = ""
        self._updated = 0.0

    def log(self, text: str) -> None:
        """Show a line below the bar, unless it is a detail."""
        if isinstance(text, Detail):
            return
        self._lines = [*self._lines[1 - LINES :], text]
        self._update()

    def start(self, n_epochs: int, epoch: float) -> None:
        """Show the bar."""
        self._n_epochs, self._epoch = n_epochs, epoch
        self._update()

    def step(self, info: StepInfo, epoch: float) -> None:
        """Move the bar, at most twice a second."""
        self._epoch, self._numbers = epoch, f"loss {info.loss:.3f}"
        if time.monotonic() - self._updated > SECONDS:
            self._update()

    def validation(self, epoch: int, metrics: dict[str, Any], *, best: bool) -> None:
        """Show the metrics of the head that counts."""
        head, values = list(metrics.items())[-1]
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        self.log(f"epoch {epoch}: {head} {numbers}{' (best so far)' if best else ''}")

    def _update(self) -> None:
        self._updated = time.monotonic()
        shown = f"epoch {min(int(self._epoch) + 1, self._n_epochs)}/{self._n_epochs}"
        caption = f"{shown} {self._numbers}" if self._n_epochs else ""
        share = self._epoch / self._n_epochs if self._n_epochs else 0.0
        self._output.update(self._html(html_progress(share, caption, self._lines)))
