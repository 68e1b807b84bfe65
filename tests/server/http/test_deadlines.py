"""Deadlines of many, with one timer at most."""

import asyncio
import logging

import pytest

from holdfast.server.http.deadlines import NEVER, TICK, Deadlines


class Late:
    def __init__(self, name, late):
        self.name = name
        self.deadline = NEVER
        self.tick = 0
        self._late = late

    def on_deadline(self):
        self._late.put_nowait(self.name)
        if self.name == "fails":
            raise RuntimeError


def run(test):
    async def main():
        deadlines = Deadlines(asyncio.get_running_loop())
        late = asyncio.Queue()
        await asyncio.wait_for(test(deadlines, late), 30)
        deadlines.close()

    asyncio.run(main())


def test_they_come_in_order_and_once():
    async def test(deadlines, late):
        for name, after in (("c", 3 * TICK), ("a", 0), ("never", NEVER), ("b", 1.5 * TICK)):
            deadlines.set(Late(name, late), after)
        assert [await late.get() for _ in range(3)] == ["a", "b", "c"]
        assert deadlines._ticks == {}
        assert deadlines._timer is None
        deadlines.set(Late("d", late), 0)
        assert await late.get() == "d"

    run(test)


def test_they_may_move_away_and_near():
    async def test(deadlines, late):
        away, near, gone, none = (Late(name, late) for name in ("away", "near", "gone", "none"))
        for each in (away, gone, none):
            deadlines.set(each, TICK)
        deadlines.set(near, 1000)
        deadlines.set(away, 4 * TICK)
        deadlines.set(none, NEVER)
        deadlines.set(near, 2 * TICK)
        deadlines.forget(gone)
        assert [await late.get() for _ in range(2)] == ["near", "away"]
        assert [each.tick for each in (away, near, gone, none)] == [0, 0, 0, 0]
        assert late.empty()

    run(test)


def test_one_that_fails_does_not_keep_the_others(caplog):
    async def test(deadlines, late):
        for name in ("fails", "b"):
            deadlines.set(Late(name, late), 0)
        assert {await late.get(), await late.get()} == {"fails", "b"}

    with caplog.at_level(logging.ERROR, "holdfast"):
        run(test)
    assert "did not meet its deadline" in caplog.text


@pytest.mark.parametrize("count", [10_000])
def test_a_busy_one_is_filed_once(count):
    async def test(deadlines, late):
        one = Late("x", late)
        for _ in range(count):
            deadlines.set(one, 50)
        assert sum(map(len, deadlines._ticks.values())) == 1

    run(test)
