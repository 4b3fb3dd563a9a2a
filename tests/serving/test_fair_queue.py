"""The fair queue: shares by size, order within a client, who loses a place."""

import random
from dataclasses import dataclass

import pytest

from umpteen.serving.fair_queue import FairQueue


@dataclass
class Job:
    client: str
    size: float
    number: int = 0


def taken(queue, n):
    return [queue.pop() for _ in range(n)]


def test_one_client_alone_is_served_in_order():
    queue = FairQueue()
    for n in range(5):
        queue.push(Job("a", n + 1, n))
    assert [job.number for job in taken(queue, 5)] == list(range(5))
    assert (len(queue), queue.size) == (0, 0)


def test_clients_get_equal_shares_by_size_however_their_jobs_are_cut():
    queue, random_numbers = FairQueue(), random.Random(3)
    sizes = {"large": 8, "small": 1, "middle": 3}
    for client, size in sizes.items():
        for _ in range(600 // size):
            queue.push(Job(client, size))
    served = dict.fromkeys(sizes, 0.0)
    while max(served.values()) < 500:
        job = queue.pop()
        served[job.client] += job.size
        if random_numbers.random() < 0.3:  # who comes later has no credit
            queue.push(Job(job.client, job.size))
    assert max(served.values()) - min(served.values()) <= 2 * max(sizes.values())


def test_a_client_that_comes_late_waits_for_no_backlog_of_others():
    queue = FairQueue()
    for n in range(100):
        queue.push(Job("flood", 1, n))
    taken(queue, 30)
    queue.push(Job("late", 1))
    assert "late" in {job.client for job in taken(queue, 2)}
    assert queue.before("late", 1) == 2
    assert queue.before("flood", 1) == 1 + queue.load("flood")


def test_the_newest_jobs_of_the_heaviest_make_room():
    queue = FairQueue()
    for n in range(6):
        queue.push(Job("a", 2, n))
    queue.push(Job("b", 3))
    assert [job.number for job in queue.shed("c", 4, 15)] == [5, 4]
    assert (queue.size, queue.load("a"), len(queue)) == (11, 8, 5)
    assert list(queue.shed("a", 4, 11)) == []  # not for one that has more itself
    assert [job.client for job in taken(queue, 5)].count("a") == 4
    with pytest.raises(IndexError):
        queue.pop()
