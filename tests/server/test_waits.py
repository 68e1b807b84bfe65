"""Waiting acquires: first come, first served, pushed, and nothing left behind that nobody comes back for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from holdfast import errors
from holdfast.core import wire
from holdfast.core.family import Outcome, Terms
from holdfast.core.plans import Grant
from holdfast.core.requests import (
    Acquire,
    Done,
    Granted,
    Inspect,
    Queued,
    Release,
    Renew,
    Signal,
    Withdraw,
)
from holdfast.core.settings import Settings
from holdfast.server.http.message import Stream
from holdfast.server.http.sse import Heartbeats
from holdfast.server.locks.waits import Manner, Waits
from tests.server.streaming import (
    Faulty,
    Peer,
    asking,
    eventually,
    opened,
    serving,
    somebody,
    take,
    waiting_for,
)

# No heartbeat comes within a test: whoever is served with these was woken.
PUSHED = Settings(heartbeat=500.0, claim=1000.0, patience=2000.0)
# And with these nobody needs to be woken.
BEATING = Settings(heartbeat=0.02, claim=5.0, patience=20.0)


class Waiters:
    """People who wait, each in a task, and who is served when."""

    def __init__(self, backend: Faulty, settings: Settings = PUSHED) -> None:
        self.backend = backend
        self.waiting = Waits(backend, settings=settings)
        self.served: list[str] = []
        self.queued: asyncio.Queue[tuple[str, Queued]] = asyncio.Queue()

    async def join(self, key: str, attempt: str, **more: Any) -> asyncio.Task[Any]:
        """Have somebody wait, and see that it is in the queue."""
        task = self.start(key, attempt, **more)
        while (await self.queued.get())[0] != attempt:
            pass  # others may have asked again
        return task

    def start(
        self, key: str, attempt: str, *, timeout: float | None = None, keep: bool = False, **more: Any
    ) -> asyncio.Task[Any]:
        terms = {name: more.pop(name) for name in ("terms", "patience", "claim") if name in more}
        request = asking(self.backend, key, attempt, **terms)

        async def wait() -> Any:
            answer = await self.waiting.acquire(
                request,
                Manner(timeout, keep, **more),
                on_queued=lambda queued, attempt: self.queued.put_nowait((attempt, queued)),
            )
            if isinstance(answer, Grant):
                self.served.append(attempt)
            return answer

        return asyncio.create_task(wait())


@asynccontextmanager
async def waiters(url: str, settings: Settings = PUSHED) -> AsyncIterator[Waiters]:
    async with opened(url) as backend:
        found = Waiters(backend, settings)
        try:
            yield found
        finally:
            await found.waiting.close()


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_a_free_lock_costs_one_request(url: str):
    async with waiters(url) as who:
        grant = await who.start("k", "a-1", timeout=10)
        assert (grant.key, grant.attempt, grant.owner) == ("k", "a-1", "a-1")
        assert who.backend.asked == {"Acquire": 1}
        assert who.waiting.count == 0


async def test_who_waits_is_served_in_order_and_pushed(url: str):
    """Each is woken by the release before; no heartbeat comes for a long time."""
    async with waiters(url) as who:
        release = await take(who.backend, "k", "first")
        tasks = [await who.join("k", f"a-{n}", timeout=100) for n in range(5)]
        assert who.waiting.count == 5
        for task in tasks:
            await who.backend.ask(release)
            grant = await task
            release = Release("k", grant.attempt, grant.token)
        assert who.served == [f"a-{n}" for n in range(5)]
        assert "Renew" not in who.backend.asked


async def test_at_its_timeout_a_waiter_leaves_nothing_behind(url: str):
    async with waiters(url) as who:
        await take(who.backend, "k", "first")
        with pytest.raises(errors.LockTimeout) as caught:
            await who.start("k", "a-1", timeout=0.05)
        assert caught.value.holder is not None
        assert caught.value.holder.owner == "first"
        assert await waiting_for(who.backend, "k") == 0


async def test_who_wants_to_keep_its_place_gets_it_at_the_timeout(url: str):
    async with waiters(url) as who:
        release = await take(who.backend, "k", "first")
        queued = await who.start("k", "a-1", timeout=0.05, keep=True)
        assert isinstance(queued, Queued)
        later = await who.join("k", "a-2", timeout=100)
        again = await who.join("k", "a-1", timeout=100, keep=True)
        await who.backend.ask(release)
        assert (await again).attempt == "a-1"
        assert not later.done()


async def test_one_look_with_keep_is_a_place_in_the_queue_at_once(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        assert await who.start("k", "a-1", timeout=0, keep=True) == (await who.queued.get())[1]
        assert await waiting_for(who.backend, "k") == 1


async def test_a_broken_connection_comes_back_with_its_attempt_and_keeps_its_place(url: str):
    async with waiters(url) as who:
        release = await take(who.backend, "k", "first")
        broken = await who.join("k", "a-1", timeout=100)
        behind = await who.join("k", "a-2", timeout=100)
        await cancelled(broken)
        assert await waiting_for(who.backend, "k") == 2
        again = await who.join("k", "a-1", timeout=100)
        await who.backend.ask(release)
        grant = await again
        assert not behind.done()
        await who.backend.ask(Release("k", "a-1", grant.token))
        await behind


async def test_who_cannot_come_back_is_withdrawn(url: str):
    async with waiters(url) as who:
        await take(who.backend, "k", "first")
        broken = await who.join("k", "a-1", timeout=100, named=False)
        await cancelled(broken)
        assert await waiting_for(who.backend, "k") == 0


PHASES = ["before it asks", "before it is answered", "while it waits", "before its claim", "after its claim"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_in_any_phase_it_leaves_what_it_should(
    url: str,
    phase: str,
    named: bool,
    times: int,
):
    """Nothing, if nobody can come back for it; else what its attempt has, for who comes back."""
    async with waiters(url) as who:
        reached, released = asyncio.Event(), asyncio.Event()
        claims = iter((False, True))
        pauses = {Acquire, Withdraw} if times == 2 else {Acquire}

        async def pause(request: Any, when: str) -> None:
            if type(request) in pauses and getattr(request, "attempt", "") == "mine":
                if isinstance(request, Acquire):
                    if phase != when:
                        return
                    reached.set()
                await asyncio.sleep(0) if released.is_set() else await released.wait()

        claiming = False

        async def before(request: Any) -> None:
            nonlocal claiming
            if isinstance(request, Acquire) and request.attempt == "mine":
                claiming = next(claims)
                await pause(request, "before its claim" if claiming else "before it asks")
            elif isinstance(request, Withdraw):
                await pause(request, phase)

        async def after(request: Any, answer: Any) -> None:
            if isinstance(request, Acquire) and request.attempt == "mine":
                await pause(request, "after its claim" if claiming else "before it is answered")

        release = await take(who.backend, "k", "first")
        who.backend.before, who.backend.after = before, after
        task = who.start("k", "mine", timeout=100, named=named)
        if phase not in ("before it asks", "before it is answered"):
            await who.queued.get()
        if "claim" in phase:
            await who.backend.ask(release)
        if phase != "while it waits":
            await reached.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        released.set()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        who.backend.before = who.backend.after = None
        await who.waiting.close()  # waits for last wishes

        view = await who.backend.ask(Inspect("k"))
        assert view is not None
        mine = view.holder is not None and view.holder.owner == "mine"
        if not named:
            assert not mine
            assert view.waiting == 0
        elif phase != "before it asks":
            assert mine or view.waiting == 1
            again = await who.backend.ask(asking(who.backend, "k", "mine"))
            assert isinstance(again, Granted if "claim" in phase else Queued)


async def test_a_lost_signal_costs_a_heartbeat(url: str):
    async with waiters(url, BEATING) as who:
        release = await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100)
        who.backend.deaf = True
        await who.backend.ask(release)
        assert (await task).attempt == "a-1"


async def test_heartbeats_keep_tickets_alive(url: str):
    """A ticket of half a second lives for as long as somebody waits for it."""
    async with waiters(url, BEATING) as who:
        release = await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100, patience=0.5, claim=0.1)
        await eventually(lambda: who.backend.asked["Renew"] >= 40)  # at least 0.8 s
        await who.backend.ask(release)
        assert (await task).attempt == "a-1"


async def test_a_thousand_waiters_are_one_request_a_heartbeat_and_no_threads(memory: str):
    async with waiters(memory, Settings(heartbeat=0.2, claim=5.0, patience=60.0)) as who:
        for n in range(1000):
            await take(who.backend, f"k-{n}", f"first-{n}")
        threads = threading.active_count()
        tasks = [who.start(f"k-{n}", f"a-{n}", timeout=100) for n in range(1000)]
        for _ in tasks:
            await who.queued.get()
        assert who.waiting.count == 1000
        who.backend.asked.clear()
        sizes: list[int] = []

        async def note(request: Any) -> None:
            if isinstance(request, Renew):
                sizes.append(len(request.tickets))

        who.backend.before = note
        await eventually(lambda: len(sizes) >= 3)
        # Nobody is asked for but by the heartbeat, and that asks for all at once.
        assert set(who.backend.asked) == {"Renew"}
        assert sizes == [1000] * len(sizes)
        assert threading.active_count() == threads
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert who.waiting.count == 0


async def test_a_thousand_waiters_for_one_lock_are_served_with_three_requests_each(memory: str):
    async with waiters(memory) as who:
        release = await take(who.backend, "k", "first")
        tasks = [who.start("k", f"a-{n}", timeout=100) for n in range(1000)]
        for _ in tasks:
            await who.queued.get()
        for task in tasks:
            await who.backend.ask(release)
            grant = await task
            release = Release("k", grant.attempt, grant.token)
        assert who.served == [f"a-{n}" for n in range(1000)]
        assert who.backend.asked.total() <= 3 * 1001


async def test_everybody_who_waited_for_an_operation_is_told(url: str):
    operation = Terms(operation=True)
    async with waiters(url) as who:
        release = await take(who.backend, "op:k", "first", terms=operation)
        tasks = [await who.join("op:k", f"a-{n}", timeout=100, terms=operation) for n in range(3)]
        outcome = Outcome(True, '"fine"')
        await who.backend.ask(Release("op:k", "first", release.token, retire=True, outcome=outcome))
        assert await asyncio.gather(*tasks) == [Done('"fine"', release.token)] * 3


async def test_who_comes_back_before_it_was_missed_waits_twice_and_loses_nothing(url: str):
    """A client may be back before we notice that its first connection is broken."""
    async with waiters(url) as who:
        release = await take(who.backend, "k", "first")
        old = await who.join("k", "a-1", timeout=100)
        new = await who.join("k", "a-1", timeout=100)
        assert await waiting_for(who.backend, "k") == 1
        await cancelled(old)
        await who.backend.ask(release)
        assert (await new).attempt == "a-1"


async def test_an_attempt_that_has_ended_takes_nothing_any_more(memory: str):
    """Its caller knows it by its name: what went on under another one, nobody would release."""
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        with pytest.raises(errors.LockTimeout):
            await who.start("k", "a-1", timeout=0.02)
        with pytest.raises(errors.NotHeld, match="ask with a new one"):
            await who.start("k", "a-1", timeout=100)
        assert await waiting_for(who.backend, "k") == 0


async def test_an_outage_is_waited_out(url: str):
    async with waiters(url, BEATING) as who:
        release = await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100)
        who.backend.cut = True
        failed = asyncio.Event()

        async def note(request: Any) -> None:
            if isinstance(request, Renew):
                failed.set()

        who.backend.before = note
        await failed.wait()
        other = who.start("k", "a-2", timeout=100)  # who asks during the outage waits for its end as well
        await eventually(lambda: who.backend.asked["Acquire"] >= 4)
        assert not task.done()
        who.backend.cut = False
        await who.backend.ask(release)
        grant = await task
        await who.backend.ask(Release("k", "a-1", grant.token))
        await other


async def test_who_leaves_in_an_outage_is_not_held_up(memory: str):
    """Its ticket ends with its patience, or when the store is back."""
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100, named=False)
        who.backend.cut = True
        await cancelled(task)
        assert who.backend.asked["Withdraw"] >= 1


async def test_without_a_store_one_look_fails_at_once(memory: str):
    async with waiters(memory) as who:
        who.backend.cut = True
        with pytest.raises(errors.StoreUnavailable, match="cut"):
            await who.start("k", "a-1", timeout=0, keep=True)


async def test_at_its_timeout_in_an_outage_a_place_in_the_queue_is_what_it_was(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=0.1, keep=True)
        who.backend.cut = True
        assert isinstance(await task, Queued)


async def test_draining_sends_all_away_and_leaves_their_tickets(url: str):
    async with waiters(url) as who:
        await take(who.backend, "k", "first")
        named = [await who.join("k", f"a-{n}", timeout=100) for n in range(3)]
        nameless = await who.join("k", "b-1", timeout=100, named=False)
        who.waiting.drain()
        for answer in await asyncio.gather(*named, nameless, return_exceptions=True):
            assert isinstance(answer, errors.StoreUnavailable)
            assert "same attempt" in str(answer)
        assert await waiting_for(who.backend, "k") == 3
        with pytest.raises(errors.StoreUnavailable):
            await who.start("other", "a-9", timeout=100)
        assert await who.backend.ask(Inspect("other")) is None


async def test_who_is_granted_while_the_server_drains_is_told(memory: str):
    async with waiters(memory) as who:
        release = await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100)
        await who.backend.ask(release)
        who.waiting._tickets.signalled(Signal("granted", "k", "a-1"))
        who.waiting.drain()
        assert (await task).attempt == "a-1"


async def test_who_loses_its_access_leaves_the_queue(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        gone = await who.join("k", "a-1", timeout=100, principal=somebody("acquire:*", token_id="one"))
        stays = await who.join("k", "a-2", timeout=100, principal=somebody("acquire:*", token_id="two"))
        who.waiting.revoke("one")
        with pytest.raises(errors.NotAuthenticated):
            await gone
        assert await waiting_for(who.backend, "k") == 1
        await cancelled(stays)


async def test_what_is_granted_to_who_has_lost_its_access_is_given_back(memory: str):
    async with waiters(memory) as who:

        async def revoke(request: Any, answer: Any) -> None:
            if isinstance(answer, Granted):
                who.waiting.revoke("one")

        who.backend.after = revoke
        with pytest.raises(errors.NotAuthenticated):
            await who.start("k", "a-1", timeout=100, principal=somebody("acquire:*", token_id="one"))
        who.backend.after = None
        view = await who.backend.ask(Inspect("k"))
        assert view is not None
        assert view.state == "free"


# Streams.


def say(answer: Any) -> dict[str, Any]:
    if isinstance(answer, errors.HoldfastError):
        return wire.error_to_json(answer)
    if isinstance(answer, Grant):
        return {"answer": "granted", "token": answer.token, "attempt": answer.attempt}
    return wire.answer_to_json(answer)


def listen(who: Waiters, key: str, attempt: str, place: Any = None, **more: Any) -> Peer:
    stream = Stream()
    who.waiting.stream(asking(who.backend, key, attempt), stream, Manner(**more), say, place)
    return Peer(stream)


async def test_a_stream_tells_the_place_and_then_of_the_grant(url: str):
    async with waiters(url) as who:
        release = await take(who.backend, "k", "first")
        peer = listen(who, "k", "a-1")
        assert (await peer.next("queued"))["position"] == 1
        await who.backend.ask(release)
        assert (await peer.next("granted"))["attempt"] == "a-1"
        await peer.until(lambda peer: peer.ended)
        assert peer.kinds == ["queued", "granted"]
        assert who.waiting.count == 0


async def test_a_stream_is_told_when_it_is_next(url: str):
    """The heartbeat finds out; nobody was woken for it, because the lease is a long one."""
    async with waiters(url, BEATING) as who:
        await take(who.backend, "k", "first")
        before = await who.join("k", "a-1", timeout=100, named=False)
        peer = listen(who, "k", "a-2")
        assert (await peer.next("queued"))["position"] == 2
        await cancelled(before)
        await peer.until(lambda peer: len(peer.events) == 2)
        assert peer.events[1][1]["position"] == 1
        asked = who.backend.asked["Acquire"]
        beats = who.backend.asked["Renew"]
        await eventually(lambda: who.backend.asked["Renew"] >= beats + 3)
        assert who.backend.asked["Acquire"] == asked  # and then it is known
        peer.leave()


async def test_a_stream_ends_with_the_problem(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        peer = listen(who, "k", "a-1", timeout=0.02)
        assert (await peer.next("problem"))["error"] == "LockTimeout"
        await peer.until(lambda peer: peer.ended)
        assert await waiting_for(who.backend, "k") == 0


async def test_a_stream_with_a_time_ends_with_its_place_if_that_is_wanted(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        peer = listen(who, "k", "a-1", timeout=0.02, keep=True)
        await peer.until(lambda peer: peer.ended)
        assert set(peer.kinds) == {"queued"}
        assert await waiting_for(who.backend, "k") == 1


@pytest.mark.parametrize("named", [True, False])
async def test_a_stream_that_breaks_leaves_its_ticket_only_for_who_can_come_back(url: str, named: bool):
    async with waiters(url) as who:
        await take(who.backend, "k", "first")
        peer = listen(who, "k", "a-1", named=named)
        await peer.next("queued")
        peer.leave()
        await eventually(lambda: not who.waiting.count)
        await who.waiting.close()
        assert await waiting_for(who.backend, "k") == named


@pytest.mark.parametrize("named", [True, False])
async def test_a_grant_that_cannot_be_delivered_is_given_back_if_nobody_can_come_back(
    memory: str,
    named: bool,
):
    async with waiters(memory) as who:
        stream = Stream()
        peer: Peer

        def leave(answer: Any) -> dict[str, Any]:
            peer.leave()
            return say(answer)

        who.waiting.stream(asking(who.backend, "k", "a-1"), stream, Manner(named=named), leave)
        peer = Peer(stream)
        await eventually(lambda: not who.waiting._tasks)
        view = await who.backend.ask(Inspect("k"))
        assert view is not None
        assert view.state == ("held" if named else "free")


async def test_streams_end_with_goodbye_when_the_server_drains(memory: str):
    async with waiters(memory) as who:
        await take(who.backend, "k", "first")
        peer = listen(who, "k", "a-1")
        await peer.next("queued")
        who.waiting.drain()
        assert (await peer.next("goodbye"))["reason"] == "draining"
        await peer.until(lambda peer: peer.ended)
        assert await waiting_for(who.backend, "k") == 1


async def test_a_place_among_the_waiters_is_kept_for_as_long_as_the_stream(memory: str):
    taken: list[str] = []

    @contextmanager
    def place(free: bool = True) -> Any:
        if not free:
            raise errors.LimitExceeded("waiters", 1)
        taken.append("in")
        yield
        taken.append("out")

    async with waiters(memory) as who:
        release = await take(who.backend, "k", "first")
        with pytest.raises(errors.LimitExceeded):
            listen(who, "k", "a-0", place=place(free=False))
        peer = listen(who, "k", "a-1", place=place())
        await peer.next("queued")
        assert taken == ["in"]
        await who.backend.ask(release)
        await peer.until(lambda peer: peer.ended)
        assert taken == ["in", "out"]


async def test_streams_beat_while_nothing_happens(memory: str):
    async with opened(memory) as backend:
        waiting = Waits(backend, heartbeats=Heartbeats(0.01), settings=PUSHED)
        await take(backend, "k", "first")
        stream = Stream()
        waiting.stream(asking(backend, "k", "a-1"), stream, Manner(), say)
        peer = Peer(stream)
        await peer.until(lambda peer: peer.beats >= 3)
        peer.leave()
        await waiting.close()


async def test_through_a_socket_a_waiter_is_told_and_one_that_leaves_is_missed(url: str):
    async with waiters(url) as who:

        async def handle(request: Any) -> Stream:
            stream = Stream()
            attempt = request.path.removeprefix("/")
            who.waiting.stream(asking(who.backend, "k", attempt), stream, Manner(named=False), say)
            return stream

        async with serving(handle) as connect:
            release = await take(who.backend, "k", "first")
            leaving = await connect("/a-1")
            await leaving.next("queued")
            staying = await connect("/a-2")
            await staying.next("queued")
            await leaving.leave()
            await eventually(lambda: who.waiting.count == 1)
            await who.backend.ask(release)
            assert (await staying.next("granted"))["attempt"] == "a-2"
            await staying.until(lambda staying: staying.ended)


async def test_who_withdraws_is_not_waited_for_any_longer(url: str):
    """A line that its caller has left, and nobody has noticed, takes nothing under another name."""
    async with waiters(url, BEATING) as who:
        release = await take(who.backend, "k", "first")
        task = await who.join("k", "a-1", timeout=100)
        await who.backend.ask(Withdraw("k", "a-1"))
        with pytest.raises(errors.NotHeld):
            await task
        await who.backend.ask(release)
        assert await waiting_for(who.backend, "k") == 0
        assert (await who.backend.ask(Inspect("k"))).state == "free"


async def test_what_cannot_be_withdrawn_for_a_caller_who_has_gone_is_pursued(memory: str):
    """Its ticket would else last for half an hour."""
    async with waiters(memory) as who:
        await take(who.backend, "k", "a-1")
        task = await who.join("k", "b-1", named=False)
        who.backend.cut = True
        await cancelled(task)
        await eventually(lambda: who.backend.asked["Withdraw"] > 2)
        who.backend.cut = False
        while await waiting_for(who.backend, "k"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_server_that_goes_away_withdraws_once_more_and_does_not_wait(memory: str):
    async with opened(memory) as backend:
        who = Waiters(backend)
        await take(backend, "k", "a-1")
        task = await who.join("k", "b-1", named=False)
        backend.cut = True
        await cancelled(task)
        backend.cut = False
        await who.waiting.close()
        assert await waiting_for(backend, "k") == 0


async def test_withdrawals_for_callers_who_have_gone_do_not_wait_for_each_other(memory: str):
    """They are pursued one after the other only if the store fails."""
    async with waiters(memory) as who:
        asked: list[str] = []
        go_on = asyncio.Event()
        ask = who.backend.ask

        async def slow(request: Any, history: Any = None) -> Any:
            asked.append(f"{request.attempt} {history}")
            await go_on.wait()
            return await ask(request, history)

        who.backend.ask = slow  # type: ignore[method-assign]
        for attempt in ("a-1", "a-2"):
            who.waiting.withdraw(asking(who.backend, "k", attempt), "all")
        await asyncio.sleep(0)
        assert asked == ["a-1 all", "a-2 all"]
        go_on.set()
