"""The queue: what comes together is answered together, and nobody waits for ever."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("fastapi")

from umpteen.serving.batching import Batcher, DeadlinePassed, Overloaded


class Gate:
    """Doubles numbers, when it is opened; remembers its batches."""

    def __init__(self, *, open_=True):
        self.batches = []
        self._open = threading.Event()
        self.called = threading.Event()
        if open_:
            self._open.set()

    def open(self):
        self._open.set()

    def close(self):
        self._open.clear()

    def __call__(self, work):
        self.called.set()
        assert self._open.wait(180)
        self.batches.append(list(work))
        if "bad" in work:
            raise ValueError("bad")
        return [2 * each for each in work]


def batcher(gate, **options):
    settings = {"batch_size": 4, "wait_seconds": 0.02, "queue_size": 10, **options}
    return Batcher(gate, **settings)


async def one(queue, work, size, *, seconds, client=""):
    return (await queue.submit([(work, size)], seconds=seconds, client=client))[0]


def test_what_comes_together_is_answered_together_and_rightly():
    async def play():
        gate = Gate()
        queue = batcher(gate)
        found = await asyncio.gather(*(one(queue, n, 1, seconds=180) for n in range(7)))
        await queue.close()
        return found, gate.batches

    found, batches = asyncio.run(play())
    assert found == [0, 2, 4, 6, 8, 10, 12]
    assert batches == [[0, 1, 2, 3], [4, 5, 6]]


def test_one_who_asks_alone_does_not_wait():
    async def play():
        gate = Gate()
        queue = batcher(gate, wait_seconds=1000.0)
        found = [await one(queue, n, 1, seconds=180) for n in range(3)]
        await queue.close()
        return found, gate.batches

    found, batches = asyncio.run(play())
    assert found == [0, 2, 4]
    assert batches == [[0], [1], [2]]


def test_a_smaller_job_than_the_one_before_does_not_wait():
    async def play():
        gate = Gate()
        queue = batcher(gate, wait_seconds=1000.0)
        found = [await one(queue, n, 2.0 - n / 10, seconds=180) for n in range(3)]
        await queue.close()
        return found, gate.batches

    assert asyncio.run(play()) == ([0, 2, 4], [[0], [1], [2]])


def test_those_answered_together_are_waited_for():
    async def play():
        gate = Gate()
        queue = batcher(gate, wait_seconds=1000.0)
        await asyncio.gather(*(one(queue, n, 1, seconds=180) for n in range(3)))
        again = []
        for n in range(3):  # one after the other
            again.append(asyncio.create_task(one(queue, n, 1, seconds=180)))
            await asyncio.sleep(0.01)
            assert len(gate.batches) == 1 or n == 2
        found = await asyncio.gather(*again)
        await queue.close()
        return found, gate.batches

    found, batches = asyncio.run(play())
    assert found == [0, 2, 4]
    assert batches == [[0, 1, 2], [0, 1, 2]]


def test_nobody_is_waited_for_longer_than_the_wait():
    async def play():
        gate = Gate()
        queue = batcher(gate, wait_seconds=0.02)
        await asyncio.gather(*(one(queue, n, 1, seconds=180) for n in range(3)))
        found = await one(queue, 7, 1, seconds=180)
        await queue.close()
        return found, gate.batches

    found, batches = asyncio.run(play())
    assert found == 14
    assert batches == [[0, 1, 2], [7]]


def test_larger_work_goes_alone_and_order_is_kept():
    async def play():
        gate = Gate()
        queue = batcher(gate)
        sizes = [1, 9, 1, 3]
        done = [one(queue, n, size, seconds=180) for n, size in enumerate(sizes[:1])]
        done += [one(queue, 1, 9, seconds=180)]
        found = await asyncio.gather(*done)
        await queue.close()
        return found, gate.batches

    found, batches = asyncio.run(play())
    assert found == [0, 2]
    assert batches == [[0], [1]]


def test_too_much_is_refused_with_a_time_to_come_back():
    async def play():
        gate = Gate(open_=False)
        queue = batcher(gate)
        accepted = [asyncio.create_task(one(queue, n, 1, seconds=180)) for n in range(10)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await one(queue, 10, 1, seconds=180)
        gate.open()
        found = await asyncio.gather(*accepted)
        assert await one(queue, 11, 1, seconds=180) == 22  # there is room again
        await queue.close()
        return found, refused.value.retry_after

    found, retry_after = asyncio.run(play())
    assert found == [2 * n for n in range(10)]
    assert retry_after >= 1


def test_what_lies_between_batches_counts_when_work_is_accepted():
    async def play():
        gate = Gate(open_=True)
        queue = batcher(gate)

        async def busy(n):
            await one(queue, n, 1, seconds=180)
            time.sleep(0.05)  # the loop has other things to do after every answer

        await asyncio.gather(*(busy(n) for n in range(10)))
        gate.close()
        waiting = [asyncio.create_task(one(queue, n, 1, seconds=180)) for n in range(9)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):  # answers take no time, but nine are 0.2 s away at least
            await one(queue, 9, 1, seconds=0.1)
        gate.open()
        found = await asyncio.gather(*waiting)
        await queue.close()
        return found

    assert asyncio.run(play()) == [2 * n for n in range(9)]


def test_a_deadline_is_told_and_late_work_is_not_done():
    async def play():
        gate = Gate(open_=False)
        queue = batcher(gate)
        first = asyncio.create_task(one(queue, 1, 4, seconds=180))
        assert await asyncio.to_thread(gate.called.wait, 180)
        with pytest.raises(DeadlinePassed):
            await one(queue, 2, 1, seconds=0.05)
        third = asyncio.create_task(one(queue, 3, 1, seconds=180))
        gate.open()
        found = [await first, await third]
        await queue.close()
        return found, gate.batches, queue.waiting

    found, batches, waiting = asyncio.run(play())
    assert found == [2, 6]
    assert batches == [[1], [3]]
    assert waiting == 0


def test_a_job_that_fails_in_a_batch_is_retried_alone_and_only_it_fails():
    async def play():
        gate, failures = Gate(), []
        queue = batcher(gate, on_failure=failures.append)
        found = await asyncio.gather(
            one(queue, 1, 1, seconds=180),
            one(queue, "bad", 1, seconds=180),
            one(queue, 3, 1, seconds=180),
            return_exceptions=True,
        )
        after = await one(queue, 4, 1, seconds=180)
        await queue.close()
        return found, after, gate.batches, queue.waiting, failures

    found, after, batches, waiting, failures = asyncio.run(play())
    assert len(failures) == 1
    assert (found[0], found[2]) == (2, 6)
    assert isinstance(found[1], ValueError)
    assert (after, waiting) == (8, 0)
    assert batches == [[1, "bad", 3], [1], ["bad"], [3], [4]]


def test_too_few_answers_fail_their_jobs_and_not_the_queue():
    async def play():
        queue = batcher(lambda work: [])
        failed = await asyncio.gather(one(queue, 1, 1, seconds=180), return_exceptions=True)
        await queue.close()
        return failed, queue.waiting

    failed, waiting = asyncio.run(play())
    assert isinstance(failed[0], RuntimeError)
    assert waiting == 0


def test_closing_answers_what_was_accepted():
    async def play():
        gate = Gate(open_=False)
        queue = batcher(gate)
        accepted = [asyncio.create_task(one(queue, n, 1, seconds=180)) for n in range(6)]
        await asyncio.sleep(0.03)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0.03)
        gate.open()
        await closing
        return await asyncio.gather(*accepted)

    assert asyncio.run(play()) == [0, 2, 4, 6, 8, 10]


def test_a_flood_of_one_client_does_not_delay_another():
    async def play():
        gate = Gate(open_=False)
        queue = batcher(gate, queue_size=100)
        flood = [asyncio.create_task(one(queue, n, 1, seconds=180, client="a")) for n in range(40)]
        await asyncio.sleep(0.01)
        other = [
            asyncio.create_task(one(queue, 100 + n, 1, seconds=180, client="b")) for n in range(4)
        ]
        await asyncio.sleep(0.01)
        gate.open()
        await asyncio.gather(*flood, *other)
        await queue.close()
        return gate.batches

    batches = asyncio.run(play())
    first = [n for batch in batches[:4] for n in batch]
    assert {100, 101, 102, 103} <= set(first)
    assert [n for batch in batches for n in batch if n < 100] == list(range(40))


def test_in_a_full_queue_the_newest_of_the_client_with_most_make_room():
    async def play():
        gate = Gate(open_=False)
        queue = batcher(gate)
        flood = [asyncio.create_task(one(queue, n, 1, seconds=180, client="a")) for n in range(10)]
        await asyncio.sleep(0.01)
        other = asyncio.create_task(one(queue, 20, 2, seconds=180, client="b"))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded):  # who has most waiting makes room for no more of its own
            await one(queue, 10, 1, seconds=180, client="a")
        gate.open()
        found = await asyncio.gather(*flood, other, return_exceptions=True)
        await queue.close()
        return found

    found = asyncio.run(play())
    assert found[:8] == [2 * n for n in range(8)]
    assert all(isinstance(each, Overloaded) for each in found[8:10])
    assert found[10] == 40


def test_pieces_of_one_request_go_into_batches_and_fail_together():
    async def play():
        gate, seen = Gate(), []
        queue = batcher(gate, on_batch=seen.append)
        found = await queue.submit([(n, 3) for n in range(3)], seconds=180)
        with pytest.raises(ValueError, match="bad"):
            await queue.submit([("bad", 3), (1, 3), (2, 3)], seconds=180)
        await queue.close()
        return found, gate.batches, seen, queue.waiting

    found, batches, seen, waiting = asyncio.run(play())
    assert found == [0, 2, 4]
    assert batches[:3] == [[0], [1], [2]]
    assert ["bad"] in batches
    assert waiting == 0
    assert [batch.size for batch in seen[:3]] == [3, 3, 3]
    assert all(batch.seconds >= 0 and len(batch.waited) == 1 for batch in seen)
