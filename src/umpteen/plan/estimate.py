"""A plan: a job's formulas on a machine, added up, and what to change where it does not fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from umpteen.plan import exchange, formulas
from umpteen.plan.job import Job
from umpteen.plan.machines import GIB, Machine

ALWAYS: dict[str, Callable[[Job], float]] = {
    "label vectors": formulas.label_vectors,
    "their moments": formulas.label_moments,
    "encoder, heads and optimizer": formulas.encoder_states,
    "queries of a frozen encoder": formulas.frozen_queries,
}
IN_A_STEP: dict[str, Callable[[Job], float]] = {
    "activations of a step": formulas.activations,
    "scores": formulas.scores,
    "gradient of label vectors": formulas.label_gradient,
    "dual vectors of all labels": formulas.dual_labels,
}
BETWEEN_STEPS: dict[str, Callable[[Job], float]] = {
    "refresh, between steps": formulas.refresh_buffers,
    "validation, between steps": formulas.validation_buffers,
}
"""One after the other."""
ON_THE_HOST: dict[str, Callable[[Job], float]] = {
    "label vectors and moments": formulas.host_table,
    "label vectors to search": formulas.host_search,
    "texts": formulas.host_texts,
    "tokens": formulas.host_tokens,
    "targets": formulas.host_targets,
    "hard negatives": formulas.host_negatives,
}


@dataclass(frozen=True)
class Plan:
    """What a run takes; bytes of the fullest device, seconds."""

    job: Job
    machine: Machine
    device_bytes: dict[str, float]
    """By part."""
    peak_bytes: float
    """The most at one time: steps and refreshes do not need theirs together."""
    host_bytes: dict[str, float]
    seconds: dict[str, float]
    """Of a step, a refresh, an epoch and the run, exchange between devices included."""
    exchanged_bytes: dict[str, float]
    """What each of several devices sends in a step and in a refresh."""
    pool: int
    fits: bool
    advice: list[str]
    """Settings to change, where it does not fit; empty where it does, or where nothing helps."""

    def as_json(self) -> dict[str, Any]:
        """Return numbers and words for a machine to read."""
        return {
            "gpu": self.machine.name,
            "gpus": self.job.gpus,
            "fits": self.fits,
            "device_memory_bytes": round(self.machine.memory),
            "device_peak_bytes": round(self.peak_bytes),
            "device_bytes": {name: round(value) for name, value in self.device_bytes.items()},
            "host_bytes": {name: round(value) for name, value in self.host_bytes.items()},
            "seconds": self.seconds,
            "exchanged_bytes": {n: round(value) for n, value in self.exchanged_bytes.items()},
            "labels_in_a_step": self.pool,
            "steps_in_an_epoch": math.ceil(self.job.queries / self.job.batch),
            "advice": self.advice,
        }


def estimate(job: Job, machine: Machine) -> Plan:
    """Return the plan of a job; nothing is measured or started."""
    parts = {
        name: formula(job) for name, formula in {**ALWAYS, **IN_A_STEP, **BETWEEN_STEPS}.items()
    }
    host = {name: formula(job) for name, formula in ON_THE_HOST.items()}
    sent = {"step": exchange.step_bytes(job), "refresh": exchange.refresh_bytes(job)}
    step, refresh = (
        formula(job, machine) + exchange.seconds(job, machine, sent[name])
        for name, formula in (
            ("step", formulas.step_seconds), ("refresh", formulas.refresh_seconds),
        )
    )  # fmt: skip
    epoch = math.ceil(job.queries / job.batch) * step + refresh / job.refresh_epochs
    peak = peak_bytes(job, machine)
    fits = peak <= machine.memory
    return Plan(
        job=job,
        machine=machine,
        device_bytes={name: value for name, value in parts.items() if value},
        peak_bytes=peak,
        host_bytes={name: value for name, value in host.items() if value},
        seconds={
            "step": step,
            "refresh": refresh,
            "epoch": epoch,
            "run": epoch * job.epochs,
        },
        exchanged_bytes={name: size for name, size in sent.items() if size},
        pool=formulas.pool_labels(job),
        fits=fits,
        advice=[] if fits else find_advice(job, machine),
    )


def peak_bytes(job: Job, machine: Machine) -> float:
    """Return the most that a device holds; without a GPU, what the host holds is there too."""
    always = sum(formula(job) for formula in ALWAYS.values())
    step = sum(formula(job) for formula in IN_A_STEP.values())
    between = max(formula(job) for formula in BETWEEN_STEPS.values())
    host = 0.0 if machine.is_gpu else sum(formula(job) for formula in ON_THE_HOST.values())
    return (always + max(step, between)) * formulas.SLACK + host


def find_advice(job: Job, machine: Machine) -> list[str]:
    """Return the first few changes that together make the job fit, in order of what they cost.

    Returns:
        A sentence for each; empty if even all of them do not help.
    """
    return _fitting(job, machine, host=True) or _fitting(job, machine, host=False)


def _fitting(job: Job, machine: Machine, *, host: bool) -> list[str]:
    advice: list[str] = []
    for change, sentence in _changes(job, host):
        smaller = dataclasses.replace(job, **change)
        if peak_bytes(smaller, machine) >= peak_bytes(job, machine) * 0.99:
            continue
        job = smaller
        advice.append(sentence)
        if peak_bytes(job, machine) <= machine.memory:
            return advice
    return []


def _changes(job: Job, host: bool) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield changes that training accepts together: a table on the host, or several devices."""
    if job.classifier and job.label_moments == "fp32":
        yield {"label_moments": "int8"}, "--set train.label_moments=int8"
    if job.classifier and job.label_storage == "fp32":
        yield {"label_storage": "bf16"}, "--set train.label_storage=bf16"
    if host and job.movable and job.scope != "all" and job.gpus == 1:
        yield {"label_device": "host"}, "--set train.label_device=host"
    if job.scope == "all" and job.dual and job.chunk_tokens > 8192:
        yield {"chunk_tokens": 8192}, "--set pool.chunk_tokens=8192"
    if job.scope == "batch":
        pool = formulas.pool_labels(job)
        for most in (pool // 2, pool // 4):
            if most > max(256, job.min_labels):
                yield {"max_labels": most}, f"--set pool.max_labels={most}"
    for batch in (job.batch // 2, job.batch // 4):
        if batch >= 64:
            yield {"batch": batch}, f"--set batches.size={batch}"
    several = () if host or job.alone else (2, 4, 8, 16)
    for gpus in several:
        if gpus > job.gpus:
            yield {"gpus": gpus}, f"{gpus} GPUs (torchrun --nproc-per-node {gpus})"


def in_gib(value: float) -> float:
    """Convert bytes to GiB."""
    return value / GIB
