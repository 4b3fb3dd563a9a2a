"""What the workers of test_workers.py do; imports little, so that they start quickly."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from umpteen.serving.workers import START_FAILED


def note_and_wait(given, listening):
    """Leave a file named like the process, then wait; what the workers of these tests do."""
    folder, kind = given.split("|")
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (Path(folder) / str(os.getpid())).touch()
    if kind == "failing":
        sys.exit(START_FAILED)
    assert isinstance(listening, socket.socket)
    time.sleep(600)
