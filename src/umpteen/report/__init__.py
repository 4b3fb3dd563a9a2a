"""A run as one HTML page: numbers are gathered here and drawn; no metric is defined here.

``history`` reads the curves and ``outcomes`` the predictions, which ``label_gains`` and ``chosen``
look into; ``markup`` and ``charts`` draw, ``sections`` and ``page`` put together, ``writing`` is
the verb.
"""

from umpteen.report.writing import write_report

__all__ = ["write_report"]
