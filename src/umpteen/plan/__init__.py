"""What a run will take: ``estimate`` of a ``Job`` on a ``Machine``, before it is started."""

from umpteen.plan.encoders import EncoderShape, find_encoder
from umpteen.plan.estimate import Plan, estimate
from umpteen.plan.job import Job, job_of
from umpteen.plan.machines import MACHINES, Machine, find_machine

__all__ = [
    "MACHINES",
    "EncoderShape",
    "Job",
    "Machine",
    "Plan",
    "estimate",
    "find_encoder",
    "find_machine",
    "job_of",
]
