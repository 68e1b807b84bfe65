"""Plain requests of several tasks: who is asked together with whom, and who by himself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import errors
from holdfast.client.groups import LANES, MOST, Groups
from holdfast.core.requests import Acquire, Client, Request

CLIENT = Client("i-1", "alpha", 1)


def wants(key: str, attempt: str = "a-1") -> Acquire:
    return Acquire(key, attempt, attempt, 60.0, CLIENT)


class Asked:
    """What a store was asked, and when that is answered: when the test says so."""

    def __init__(self, *requests: Request[Any], future: asyncio.Future[Any]) -> None:
        self.keys = [request.key for request in requests]  # type: ignore[attr-defined]
        self.future = future

    def answer(self, *answers: Any) -> None:
        self.future.set_result(list(answers) if len(self.keys) > 1 or self.together else answers[0])

    together = False


class AStore:
    """A store that notes what it is asked. Nothing is done before a test answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.interrupted = False

    def execute(self, request: Any) -> Any:
        raise AssertionError("only in a thread")

    def try_together(self, requests: Any) -> Any:
        raise AssertionError("only in a thread")

    def start(self, function: Callable[..., Any], asked: Any) -> asyncio.Future[Any]:
        if self.interrupted:
            raise KeyboardInterrupt
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        together = function == self.try_together
        self.asked.append(Asked(*(asked if together else [asked]), future=future))
        self.asked[-1].together = together
        return future

    @property
    def seen(self) -> list[Any]:
        """What was asked: a list for a group, a key for one by itself."""
        return [each.keys if each.together else each.keys[0] for each in self.asked]


Scenario = Callable[[AStore, Groups], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[[Scenario], AStore]:
    def play(scenario: Scenario) -> AStore:
        store = AStore()

        async def run() -> None:
            await asyncio.wait_for(scenario(store, Groups(store, store.start)), 10)  # type: ignore[arg-type]

        asyncio.run(run())
        return store

    return play


@pytest.fixture(autouse=True)
def nothing_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups may take as long as a test does."""
    monkeypatch.setattr("holdfast.client.groups.STUCK", 600.0)


async def soon() -> None:
    """Let callbacks run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let time pass."""
    while not condition():  # noqa: ASYNC110 - of what comes by a timer of the loop
        await asyncio.sleep(0.001)


def test_a_task_that_is_alone_asks_at_once_and_by_itself(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        for number in range(3):
            answer = groups.ask(wants(f"k{number}"))
            assert len(store.asked) == number + 1, "it waited for company"
            store.asked[-1].answer(number)
            assert await answer == number

    assert play(scenario).seen == ["k0", "k1", "k2"]


def test_those_who_come_meanwhile_are_asked_together(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(4)]
        await soon()
        store.asked[1].answer("b", "c", "d")
        store.asked[0].answer("a")
        assert await asyncio.gather(*answers) == ["a", "b", "c", "d"]

    assert play(scenario).seen == ["k0", ["k1", "k2", "k3"]]


def test_so_many_groups_are_under_way_and_the_others_wait(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = []
        for number in range(LANES + 4):
            answers.append(groups.ask(wants(f"k{number}")))
            await soon()
        assert store.seen == ["k0", *([f"k{number}"] for number in range(1, LANES + 1))]
        store.asked[1].answer("done")
        await soon()
        assert store.seen[-1] == [f"k{number}" for number in range(LANES + 1, LANES + 4)]

    play(scenario)


def test_one_that_is_stuck_takes_no_lane(play) -> None:
    """A request by itself may wait for a row."""

    async def scenario(store: AStore, groups: Groups) -> None:
        stuck = groups.ask(wants("k0"))
        for number in range(1, 4):
            answer = groups.ask(wants(f"k{number}"))
            await soon()
            store.asked[-1].answer(number)
            assert await answer == number
        assert not stuck.done()

    play(scenario)


def test_a_group_that_does_not_come_back_takes_no_lane_for_long(play, monkeypatch) -> None:
    """Its connection may be dead, which is noticed only when an answer should have come."""
    monkeypatch.setattr("holdfast.client.groups.STUCK", 0.02)

    async def scenario(store: AStore, groups: Groups) -> None:
        stuck = []
        for number in range(LANES + 1):
            stuck.append(groups.ask(wants(f"k{number}")))
            await soon()
        waiting = groups.ask(wants("late"))
        await until(lambda: store.seen[-1] == ["late"])
        store.asked[-1].answer("here")
        assert await waiting == "here"
        assert not any(each.done() for each in stuck)

    play(scenario)


def test_a_group_that_does_not_come_back_holds_up_nobody_for_whom_it_had_no_room(play, monkeypatch) -> None:
    monkeypatch.setattr("holdfast.client.groups.STUCK", 0.02)

    async def scenario(store: AStore, groups: Groups) -> None:
        for number in range(LANES + 1):
            groups.ask(wants(f"k{number}"))
            await soon()
        for number in range(2 * MOST + 1):
            groups.ask(wants(f"m{number}"))
        await until(lambda: store.seen[-1] == [f"m{2 * MOST}"])

    play(scenario)


def test_no_key_is_twice_in_a_group_nor_are_there_too_many(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        groups.ask(wants("k0"))
        for attempt, key in (("a-1", "k1"), ("b-1", "k1"), ("a-1", "k2")):
            groups.ask(wants(key, attempt))
        for number in range(MOST):
            groups.ask(wants(f"m{number}"))
        await soon()
        assert store.asked[1].keys[:2] == ["k1", "k2"]
        assert len(store.asked[1].keys) == MOST
        assert store.asked[2].keys == ["k1", f"m{MOST - 2}", f"m{MOST - 1}"]

    play(scenario)


def test_what_the_store_cannot_answer_like_that_is_asked_by_itself(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(3)]
        await soon()
        store.asked[1].answer("quick", None)
        assert await answers[1] == "quick"
        store.asked[-1].answer("slow")
        assert await answers[2] == "slow"

    assert play(scenario).seen == ["k0", ["k1", "k2"], "k2"]


def test_an_error_is_told_to_whom_it_concerns(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(4)]
        await soon()
        store.asked[1].answer(errors.OutcomeUnknown("cut"), "fine", None)
        with pytest.raises(errors.OutcomeUnknown):
            await answers[1]
        assert await answers[2] == "fine"
        store.asked[-1].future.set_exception(errors.StoreUnavailable("away"))
        with pytest.raises(errors.StoreUnavailable):
            await answers[3]

    play(scenario)


def test_an_error_nobody_knows_is_told_to_each_by_itself(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(3)]
        await soon()
        store.asked[1].future.set_exception(ZeroDivisionError())
        told = await asyncio.gather(*answers[1:], return_exceptions=True)
        assert [type(each) for each in told] == [errors.StoreError] * 2
        assert told[0] is not told[1]

    play(scenario)


def test_a_request_whose_task_was_cancelled_is_not_asked(play) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(3)]
        answers[1].cancel()
        await soon()
        assert store.seen == ["k0", ["k2"]]

    play(scenario)


def test_a_task_that_is_cancelled_leaves_its_group_alone(play) -> None:
    """Its request goes on, and is withdrawn by whoever asked. What has to be asked again is not."""

    async def scenario(store: AStore, groups: Groups) -> None:
        answers = [groups.ask(wants(f"k{number}")) for number in range(4)]
        await soon()
        answers[1].cancel()
        answers[2].cancel()
        store.asked[1].answer("gone", None, "there")
        assert await answers[3] == "there"
        assert store.seen == ["k0", ["k1", "k2", "k3"]]

    play(scenario)


def test_an_interrupt_leaves_no_task_waiting_for_ever(play) -> None:
    """Nobody knows how far it came: each asks again."""

    async def scenario(store: AStore, groups: Groups) -> None:
        groups.ask(wants("k0"))
        answer = groups.ask(wants("k1"))
        store.interrupted = True
        with pytest.raises(KeyboardInterrupt):
            groups._send()
        store.interrupted = False
        with pytest.raises(errors.OutcomeUnknown):
            await answer
        again = groups.ask(wants("k1"))
        await soon()
        store.asked[-1].answer("here")
        assert await again == "here"

    play(scenario)


def test_in_a_forked_child_nothing_is_asked_for_the_parent(play, monkeypatch) -> None:
    async def scenario(store: AStore, groups: Groups) -> None:
        groups.ask(wants("k0"))
        groups.ask(wants("k1"))
        monkeypatch.setattr("os.getpid", lambda: 0)
        await soon()
        assert store.seen == ["k0"]

    play(scenario)
