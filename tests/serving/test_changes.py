"""The queue of changes: one at a time, and refusals instead of long waits."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from umpteen.serving.batching import Overloaded
from umpteen.serving.engine import ChangeQueue


async def hold(queue, release, order, name):
    async with queue.turn(1):
        order.append(name)
        await release.wait()


def test_changes_take_turns_and_too_many_are_refused():
    async def play():
        queue, release, order = ChangeQueue(max_waiting=3, seconds=60), asyncio.Event(), []
        tasks = [asyncio.create_task(hold(queue, release, order, n)) for n in range(4)]
        await asyncio.sleep(0)
        assert queue.working
        assert (queue.waiting, order) == (4, [0])
        with pytest.raises(Overloaded):
            async with queue.turn(1):
                pass
        release.set()
        await asyncio.gather(*tasks)
        return order, queue.waiting, queue.working

    assert asyncio.run(play()) == ([0, 1, 2, 3], 0, False)


def test_a_change_whose_turn_does_not_come_in_time_is_refused():
    async def play():
        queue, release, order = ChangeQueue(max_waiting=3, seconds=0.1), asyncio.Event(), []
        first = asyncio.create_task(hold(queue, release, order, "first"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await hold(queue, release, order, "second")
        release.set()
        await first
        await hold(queue, release, order, "third")
        return order, refused.value.retry_after

    assert asyncio.run(play()) == (["first", "third"], 1)


def test_a_change_behind_slow_ones_is_refused_at_once():
    async def play():
        queue = ChangeQueue(max_waiting=3, seconds=1.0)
        async with queue.turn(1):
            await asyncio.sleep(0.05)  # so long for each label
        release, order = asyncio.Event(), []
        large = asyncio.create_task(queue_large(queue, release))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await hold(queue, release, order, "late")
        release.set()
        await large
        return refused.value.retry_after

    async def queue_large(queue, release):
        async with queue.turn(100):
            await release.wait()

    assert asyncio.run(play()) >= 5


def test_a_change_that_fails_gives_its_turn_back():
    async def play():
        queue = ChangeQueue(max_waiting=3, seconds=60)
        with pytest.raises(ZeroDivisionError):
            async with queue.turn(5):
                raise ZeroDivisionError
        return queue.waiting, queue.working

    assert asyncio.run(play()) == (0, False)
