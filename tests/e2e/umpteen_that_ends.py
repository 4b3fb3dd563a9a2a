"""The command, started by torchrun; the process of rank 1 kills itself in its first try."""

import os
import signal

from umpteen.cli import main
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax

AFTER = 8
"""Losses: two for each step."""
calls = 0
loss = DecoupledSoftmax.loss


def loss_that_ends(self, *given):
    global calls
    calls += 1
    if calls > AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(self, *given)


if __name__ == "__main__":
    if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "0"):
        DecoupledSoftmax.loss = loss_that_ends
    main()
