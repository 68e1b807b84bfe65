"""Events by SSE: everything, once, in order, for those who may see it, however slowly others read."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from holdfast import Holdfast
from holdfast.core.plans import WATCH_ANYWAY
from holdfast.core.requests import Acquire, Break, Client, Sweep, Watch
from holdfast.server.admission.access import Principal
from holdfast.server.http import sse
from holdfast.server.http.message import HTTPRequest, Stream
from holdfast.server.http.sse import Heartbeats
from holdfast.server.settings import KIB, Limits
from holdfast.server.streams import feed as module
from holdfast.server.streams.feed import EventHub
from tests.server.streaming import (
    ANYTHING,
    Faulty,
    Peer,
    Reader,
    asking,
    eventually,
    fresh,
    opened,
    serving,
    somebody,
    take,
)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh(request, tmp_path, request.param)


class Watching:
    """A hub, and those who watch through it."""

    def __init__(
        self, backend: Faulty, *, every: float = sse.HEARTBEAT, limits: Limits | None = None
    ) -> None:
        self.backend = backend
        self.heartbeats = Heartbeats(every)
        self.hub = EventHub(backend, limits or Limits(), heartbeats=self.heartbeats)

    def watch(
        self, key: str = "", *, exact: bool = False, after: int | None = None, principal: Principal = ANYTHING
    ) -> Peer:
        stream = Stream()
        self.hub.subscribe(stream, Watch(key, exact, after), principal=principal)
        return Peer(stream)

    async def watch_from_now(self, key: str = "", **more: Any) -> Peer:
        peer = self.watch(key, **more)
        await peer.until(lambda peer: peer.place is not None)
        return peer

    async def use(self, *keys: str) -> None:
        """Take and release locks: two events each."""
        for key in keys:
            await self.backend.ask(await take(self.backend, key, f"{key}-{random.random()}"))

    async def all(self) -> list[Any]:
        """Everything that happened, read from the store."""
        events: list[Any] = []
        after = 0
        while True:
            found = await self.backend.ask(Watch("", after=after, limit=1000))
            if found.after == after:
                return events
            events += found.events
            after = found.after


@asynccontextmanager
async def watching(url: str, **more: Any) -> AsyncIterator[Watching]:
    async with opened(url) as backend:
        found = Watching(backend, **more)
        try:
            yield found
        finally:
            found.hub.close()
            found.heartbeats.close()


async def test_who_begins_now_is_told_where_and_then_what_happens(url: str):
    async with watching(url) as who:
        await who.use("k")
        peer = await who.watch_from_now()
        assert peer.place == "2"
        assert not peer.events
        await who.use("k")
        await peer.until(lambda peer: len(peer.events) == 2)
        assert peer.kinds == ["granted", "released"]
        assert peer.events[0][1]["key"] == "k"
        assert peer.ids == [3, 4]
        assert peer.place == "4"


async def test_each_sees_the_keys_it_watches(memory: str):
    async with watching(memory) as who:
        build = await who.watch_from_now("build:")
        exact = await who.watch_from_now("build:1", exact=True)
        everything = await who.watch_from_now()
        await who.use("build:1", "build:10", "other", "build")
        await everything.until(lambda peer: len(peer.events) == 8)
        assert [event["key"] for _, event in build.events] == ["build:1"] * 2 + ["build:10"] * 2
        assert [event["key"] for _, event in exact.events] == ["build:1"] * 2


async def test_who_comes_back_goes_on_behind_its_place(url: str):
    async with watching(url) as who:
        await who.use(*(f"k-{n}" for n in range(10)))
        peer = who.watch(after=7)
        await peer.until(lambda peer: len(peer.events) == 13)
        assert peer.ids == list(range(8, 21))
        await who.use("k-0")
        await peer.until(lambda peer: len(peer.events) == 15)
        assert peer.ids == list(range(8, 23))


async def test_after_zero_is_from_the_oldest_that_is_kept(url: str):
    async with watching(url) as who:
        await who.use("a:1", "b:1", "a:2")
        peer = who.watch("a:", after=0)
        await peer.until(lambda peer: len(peer.events) == 4)
        assert [event["key"] for _, event in peer.events] == ["a:1", "a:1", "a:2", "a:2"]


async def test_what_was_swept_is_not_waited_for(url: str):
    async with watching(url) as who:
        await who.use("k", "k")
        live = await who.watch_from_now()
        await who.use("k")
        await live.until(lambda peer: len(peer.events) == 2)
        await who.backend.ask(Sweep(keep_history=0.0))
        await who.use("k")
        peer = who.watch(after=1)
        await peer.until(lambda peer: peer.events)
        assert set(peer.ids) <= set(range(2, 9))
        await live.until(lambda peer: len(peer.events) == 4)


async def test_a_place_from_nowhere_begins_now(memory: str):
    """From before the store was restored, or made up: else its reader would hear nothing for years."""
    async with watching(memory) as who:
        await who.use("k")
        peer = who.watch(after=10**12)
        await peer.until(lambda peer: peer.place == "2")
        await who.use("k")
        await peer.until(lambda peer: len(peer.events) == 2)


async def test_a_missed_part_larger_than_the_memory_is_read_from_the_store(
    memory: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "REMEMBERED", 10)
    monkeypatch.setattr(module, "PAGE", 7)
    async with watching(memory) as who:
        live = await who.watch_from_now()
        await who.use(*(f"k-{n}" for n in range(100)))
        await live.until(lambda peer: len(peer.events) == 200)
        peer = who.watch(after=3)
        exact = who.watch("k-50", exact=True, after=0)
        await peer.until(lambda peer: len(peer.events) == 197)
        assert peer.ids == list(range(4, 201))
        await exact.until(lambda peer: len(peer.events) == 2)
        # And up to its end, so that it is not read again after the next reconnect.
        await exact.until(lambda peer: peer.place == "200")


async def test_who_has_read_further_than_everybody_else_is_told_nothing_twice(
    memory: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "REMEMBERED", 1)
    async with watching(memory) as who:
        await who.use("k", "k")
        every = await who.watch_from_now()
        reading = asyncio.Event()
        reading.set()

        async def hold_the_reader_back(request: Any) -> None:
            if isinstance(request, Watch):
                if request.key:  # of the one that catches up
                    reading.clear()
                    await who.use("k")
                else:
                    await reading.wait()

        await who.use("other")
        await every.until(lambda peer: len(peer.events) == 2)
        who.backend.before = hold_the_reader_back
        peer = who.watch("k", after=0)
        await peer.until(lambda peer: len(peer.events) == 6)
        assert not [event for _, event in every.events if event["key"] == "k"]
        reading.set()
        await every.until(lambda peer: len(peer.events) == 4)
        await who.use("k")
        await peer.until(lambda peer: len(peer.events) == 8)
        assert peer.ids == [1, 2, 3, 4, 7, 8, 9, 10]


async def test_a_herd_that_comes_back_soon_costs_the_store_nothing(memory: str):
    async with watching(memory) as who:
        stays = await who.watch_from_now()
        peers = [await who.watch_from_now() for _ in range(3)]
        peers += [who.watch() for _ in range(997)]
        for peer in peers:
            await peer.until(lambda peer: peer.place is not None)
        for peer in peers:
            peer.leave()
        await who.use("k", "k", "k")
        await stays.until(lambda peer: len(peer.events) == 6)
        asked: list[Any] = []

        async def note(request: Any) -> None:
            asked.append(request)

        who.backend.before = note
        peers = [who.watch(after=2) for _ in range(1000)]
        for peer in peers:
            await peer.until(lambda peer: peer.place == "6")
            assert peer.ids == [3, 4, 5, 6]
        # The reader's own reads, of which there may be some: never one for each.
        assert len(asked) < 50
        assert {(request.key, request.after) for request in asked} == {("", 6)}


@pytest.mark.parametrize("seed", range(3))
async def test_no_gap_and_no_duplicate_whoever_writes_and_leaves(
    database: str, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Writers here and elsewhere, readers that leave and come back at random: each has it all, once."""
    monkeypatch.setattr(module, "REMEMBERED", 20)
    monkeypatch.setattr(module, "PAGE", 10)
    roll = random.Random(seed)
    written = asyncio.Event()

    async with watching(database, every=0.005) as who:
        start = (await who.backend.ask(Watch(""))).after

        async def write(number: int) -> None:
            for _ in range(40):
                await who.use(f"{roll.choice('ab')}:{number}")
                await asyncio.sleep(0)

        def write_elsewhere() -> None:
            with Holdfast(database, history="all") as locks:
                for _ in range(40):
                    with locks.hold(f"{roll.choice('ab')}:elsewhere"):
                        pass

        async def read(key: str, exact: bool) -> list[int]:
            """Return the ids of all that it has seen, over many connections."""
            seen: list[int] = []
            place = start

            def take(peer: Reader) -> None:
                nonlocal place
                seen.extend(peer.ids)
                place = int(peer.place or place)

            while not written.is_set():
                peer = who.watch(key, exact=exact, after=place)
                for _ in range(roll.choice((0, 1, 5, 20, 100))):
                    await asyncio.sleep(0)
                if roll.random() < 0.3:
                    await peer.until(lambda peer: peer.changed.is_set())
                peer.leave()
                take(peer)
            last = who.watch(key, exact=exact, after=place)
            await last.until(lambda peer: int(peer.place or 0) >= end)
            last.leave()
            take(last)
            return seen

        patterns = [("", False), ("a:", False), ("b:", False), ("a:1", True), ("c:", False)] * 2
        readers = [asyncio.create_task(read(*pattern)) for pattern in patterns]
        await asyncio.gather(*(write(n) for n in range(4)), asyncio.to_thread(write_elsewhere))
        events = await who.all()
        end = events[-1].id
        written.set()
        assert len(events) == 400
        for (key, exact), seen in zip(patterns, await asyncio.gather(*readers), strict=True):
            wanted = [e.id for e in events if (e.key == key if exact else e.key.startswith(key))]
            assert seen == wanted, (key, exact)


async def test_the_place_moves_with_heartbeats_though_nothing_is_seen(memory: str):
    async with watching(memory, every=0.01) as who:
        peer = await who.watch_from_now("mine")
        await who.use("other")
        await peer.until(lambda peer: peer.place == "2")
        assert not peer.events
        await peer.until(lambda peer: peer.beats >= 2)  # a comment, when the place is known


async def test_rights_are_checked_at_every_event(memory: str):
    async with watching(memory) as who:
        some = await who.watch_from_now(principal=somebody("observe:build:*", "acquire:*"))
        none = await who.watch_from_now(principal=somebody("acquire:*"))
        every = await who.watch_from_now()
        late = who.watch(after=0, principal=somebody("observe:build:2"))
        await who.use("build:1", "secret", "build:2")
        await every.until(lambda peer: len(peer.events) == 6)
        await late.until(lambda peer: len(peer.events) == 2)
        assert {event["key"] for _, event in some.events} == {"build:1", "build:2"}
        assert {event["key"] for _, event in late.events} == {"build:2"}
        assert not none.events


async def test_the_circle_of_a_deadlock_is_told_only_to_who_may_see_every_key(memory: str):
    async with watching(memory) as who:
        every = await who.watch_from_now()
        some = await who.watch_from_now(principal=somebody("observe:a:*"))
        await take(who.backend, "a:1", "one-a", owner="one")
        await take(who.backend, "b:1", "two-b", owner="two")
        await who.backend.ask(asking(who.backend, "b:1", "one-b", owner="one"))
        await who.backend.ask(asking(who.backend, "a:1", "two-a", owner="two"))
        await every.until(lambda peer: "deadlocked" in peer.kinds)
        assert "b:1" in dict(every.events)["deadlocked"]["reason"]
        assert dict(some.events)["deadlocked"]["reason"] is None
        assert "b:1" not in str(some.events)


async def test_who_comes_back_later_sees_no_more_than_it_may(memory: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REMEMBERED", 1)
    async with watching(memory) as who:
        await who.use("build:1", "secret", "build:2")
        every = await who.watch_from_now()
        peer = who.watch(after=0, principal=somebody("observe:build:*"))
        await peer.until(lambda peer: peer.place == "6")
        assert [event["key"] for _, event in peer.events] == ["build:1"] * 2 + ["build:2"] * 2
        every.leave()


async def test_a_revoked_token_ends_its_streams_and_no_other(memory: str):
    async with watching(memory) as who:
        revoked = await who.watch_from_now(principal=somebody("observe:*", token_id="one"))
        other = await who.watch_from_now(principal=somebody("observe:*", token_id="two"))
        who.hub.revoke("one")
        assert revoked.ended
        assert revoked.events[-1][1]["reason"] == "revoked"
        await who.use("k")
        await other.until(lambda peer: len(peer.events) == 2)
        assert revoked.kinds == ["goodbye"]


async def test_draining_says_goodbye_and_where_to_go_on(memory: str):
    async with watching(memory) as who:
        peer = await who.watch_from_now("mine")
        every = await who.watch_from_now()
        await who.use("k")
        await every.until(lambda peer: len(peer.events) == 2)
        who.hub.drain()
        assert peer.ended
        assert peer.kinds == ["goodbye"]
        assert peer.events[0][1]["reason"] == "draining"
        assert peer.place == "2"
        assert who.hub.count == 0


async def test_an_outage_loses_nothing(url: str):
    async with watching(url, every=0.01) as who:
        live = await who.watch_from_now()
        await who.use("k")
        await live.until(lambda peer: len(peer.events) == 2)
        who.backend.cut = True
        reads = who.backend.asked["Watch"]
        joining = who.watch(after=0)
        await eventually(lambda: who.backend.asked["Watch"] > reads)
        beats = live.beats
        await live.until(lambda peer: peer.beats > beats)
        assert not live.ended
        with Holdfast(url, history="all") as locks, locks.hold("elsewhere"):
            pass
        who.backend.cut = False
        await live.until(lambda peer: len(peer.events) == 4)
        await joining.until(lambda peer: len(peer.events) == 4)
        assert live.ids == joining.ids == [1, 2, 3, 4]


async def test_an_outage_while_catching_up_loses_nothing(memory: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "REMEMBERED", 1)
    monkeypatch.setattr(module, "PAGE", 2)
    async with watching(memory) as who:
        await who.use("k", "k", "k", "k")
        every = await who.watch_from_now()

        async def cut(request: Any) -> None:
            if isinstance(request, Watch) and request.after == 4 and not failed:
                failed.append(True)
                raise ConnectionError("the test has cut the line")

        failed: list[bool] = []
        who.backend.before = cut
        peer = who.watch(after=0)
        await peer.until(lambda peer: len(peer.events) == 8)
        assert peer.ids == list(range(1, 9))
        assert failed
        every.leave()


async def test_nobody_watches_and_nothing_is_read(memory: str):
    async with watching(memory) as who:
        peer = await who.watch_from_now()
        peer.leave()
        assert who.hub.count == 0
        await eventually(lambda: who.hub._reader is None)
        reads = who.backend.asked["Watch"]
        await who.use("k", "k")
        for _ in range(10):
            await asyncio.sleep(0)
        assert who.backend.asked["Watch"] == reads
        again = await who.watch_from_now()
        assert again.place == "4"


async def test_a_store_that_tells_is_read_only_when_there_is_something(memory: str):
    """Requests that make no event cost no read, and one that somebody else makes is sent at once."""
    async with opened(memory, history="notable") as backend:
        hub = EventHub(backend, Limits())
        stream = Stream()
        hub.subscribe(stream, Watch(""), principal=ANYTHING)
        peer = Peer(stream)
        await peer.until(lambda peer: peer.place is not None)
        await eventually(lambda: hub._told)
        reads = backend.asked["Watch"]
        for number in range(5):
            await backend.ask(await take(backend, f"k-{number}", f"a-{number}"))
        await asyncio.sleep(0.1)
        assert backend.asked["Watch"] == reads
        with Holdfast(memory, history="all") as other:
            began = time.monotonic()
            other.acquire("theirs").release()
            await peer.until(lambda peer: len(peer.events) == 2)
            assert time.monotonic() - began < WATCH_ANYWAY / 2
        hub.close()


async def test_an_event_is_encoded_once_for_all_who_see_it(memory: str, monkeypatch: pytest.MonkeyPatch):
    encoded = []
    event = sse.event
    async with watching(memory) as who:
        peers = [who.watch(f"k-{n}", exact=True) for n in range(2000)]
        peers += [who.watch(f"p-{n}:") for n in range(2000)]
        every = [who.watch() for _ in range(10)]
        for peer in (*peers, *every):
            await peer.until(lambda peer: peer.place is not None)
        monkeypatch.setattr(sse, "event", lambda *args: encoded.append(args) or event(*args))
        await who.use("k-7", "p-7:x")
        for peer in every:
            await peer.until(lambda peer: len(peer.events) == 4)
        assert len(encoded) == 4
        assert [len(peer.events) for peer in peers if peer.events] == [2, 2]
        assert len(who.hub._index.matching("k-7")) == 11
        assert len(who.hub._index.matching("p-7:x")) == 11
        for peer in (*peers, *every):
            peer.leave()
        assert who.hub._index.matching("k-7") == []
        assert not who.hub._index._lengths


async def test_what_keys_and_reasons_say_cannot_begin_an_event(memory: str):
    evil = 'x"\u2028 data: {}'
    async with watching(memory) as who:
        peer = await who.watch_from_now()
        await who.backend.ask(Acquire(evil, "a-1", "o\u0085wner", 60.0, Client("", "h", 1)))
        await who.backend.ask(Break(evil, by="me\r\n", reason="a\n\nevent: goodbye\ndata: {}\n\n"))
        await peer.until(lambda peer: len(peer.events) == 2)
        assert peer.kinds == ["granted", "broken"]
        assert peer.events[1][1]["key"] == evil
        assert peer.events[1][1]["reason"] == "a\n\nevent: goodbye\ndata: {}\n\n"


# Through sockets.


def from_query(who: Watching) -> Any:
    async def handle(request: HTTPRequest) -> Stream:
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        after = request.headers.get("last-event-id", query.get("after"))
        stream = Stream()
        wanted = Watch(query.get("prefix", ""), after=None if after is None else int(after))
        who.hub.subscribe(stream, wanted, principal=ANYTHING)
        return stream

    return handle


async def test_through_sockets_a_reader_comes_back_where_it_was(url: str):
    async with watching(url) as who, serving(from_query(who)) as connect:
        first = await connect("/")
        await first.until(lambda peer: peer.place is not None)
        await who.use("k")
        await first.until(lambda peer: len(peer.events) == 2)
        await first.leave()
        await who.use("k")
        second = await connect("/", last_event_id=first.place)
        await second.until(lambda peer: len(peer.events) == 2)
        assert first.ids + second.ids == [1, 2, 3, 4]
        await second.leave()
        await eventually(lambda: who.hub.count == 0)


numbers = itertools.count()


async def fill(who: Watching, count: int) -> None:
    """Make many events that are large, at once."""
    reason = "x" * 1000
    for n in range(count):
        await take(who.backend, f"k-{n % 50}", f"a-{next(numbers)}")
        await who.backend.ask(Break(f"k-{n % 50}", by="me", reason=reason))


async def test_a_slow_reader_is_dropped_with_a_reason_and_delays_nobody(memory: str):
    limits = Limits(slow_reader=64 * KIB, write_time=0.2)
    async with watching(memory, limits=limits) as who, serving(from_query(who), limits) as connect:
        slow = await connect("/", reads=False)
        await eventually(lambda: who.hub.count == 1)
        quick = await connect("/")
        await quick.until(lambda peer: peer.place is not None)
        count = 0
        while who.hub.count == 2:  # until the slow one's buffers are full, in the kernel and here
            await fill(who, 500)
            count += 1000
            await quick.until(lambda peer, count=count: len(peer.events) == count)
        assert quick.ids == list(range(1, count + 1))
        assert not quick.ended
        # Whenever it reads on, it finds why.
        await slow.start()
        await slow.until(lambda peer: peer.ended)
        if "goodbye" in slow.kinds:  # unless it was cut off for not even reading that
            assert slow.events[-1][1]["reason"] == "slow"
        assert slow.ids == list(range(1, len(slow.ids) + 1))


async def test_a_reader_that_falls_behind_all_that_is_remembered_is_told_why_it_is_dropped(
    memory: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "REMEMBERED", 50)
    limits = Limits(slow_reader=64 * KIB, write_time=20.0)
    async with watching(memory, limits=limits) as who, serving(from_query(who), limits) as connect:
        slow = await connect("/", reads=False)
        quick = await connect("/")
        await quick.until(lambda peer: peer.place is not None)
        count = 0
        while not any(subscriber.late for subscriber in who.hub._subscribers):
            await fill(who, 50)
            count += 100
            await quick.until(lambda peer, count=count: len(peer.events) == count)
        await fill(who, 100)
        await quick.until(lambda peer: len(peer.events) == count + 200)
        await slow.start()
        assert (await slow.next("goodbye"))["reason"] == "slow"
        await slow.until(lambda peer: peer.ended)
        # What it was sent has no gap, so it can come back.
        assert slow.ids == list(range(1, len(slow.ids) + 1))
        assert slow.place == str(slow.ids[-1])
        again = await connect("/", last_event_id=slow.place)
        await again.until(lambda peer: slow.ids + peer.ids == list(range(1, count + 201)))


async def test_a_reader_that_pauses_for_a_moment_goes_on_at_its_own_pace(memory: str):
    limits = Limits(slow_reader=64 * KIB)
    async with watching(memory, limits=limits) as who, serving(from_query(who), limits) as connect:
        paused = await connect("/", reads=False)
        quick = await connect("/")
        await quick.until(lambda peer: peer.place is not None)
        count = 0
        while not any(subscriber.late for subscriber in who.hub._subscribers):
            await fill(who, 100)
            count += 200
            await quick.until(lambda peer, count=count: len(peer.events) == count)
        await paused.start()
        await paused.until(lambda peer: len(peer.events) == count)
        assert paused.ids == quick.ids
        await eventually(lambda: all(subscriber.live for subscriber in who.hub._subscribers))
        await who.use("k")
        await paused.until(lambda peer: len(peer.events) == count + 2)


async def test_a_long_backlog_is_sent_as_fast_as_it_is_read(memory: str):
    """Many times more than may wait for a reader: it has done nothing slowly, so it is not dropped."""
    limits = Limits(slow_reader=32 * KIB)
    async with watching(memory, limits=limits) as who, serving(from_query(who), limits) as connect:
        await fill(who, 3000)
        reader = await connect("/?after=0")
        await reader.until(lambda peer: len(peer.events) == 6000)
        assert reader.ids == list(range(1, 6001))
        assert not reader.ended


async def test_a_store_that_has_gone_back_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A backup was restored, or a replica that was behind has taken over."""
    monkeypatch.setattr(module, "LOOK_BACK", 0.0)
    async with opened(f"sqlite:///{tmp_path}/locks.db") as backend:
        there = Watching(backend)
        peer = await there.watch_from_now()
        await there.use(*(f"before-{n}" for n in range(10)))
        await peer.until(lambda peer: len(peer.events) == 20)
        with closing(sqlite3.connect(tmp_path / "locks.db")) as restored, restored:
            restored.execute("DELETE FROM holdfast_history")
            restored.execute("UPDATE holdfast_feed SET last = 0")
        await peer.until(lambda peer: peer.place == "0")
        await there.use("after")
        await peer.until(lambda peer: len(peer.events) == 22)
        assert peer.place == "2"
        there.hub.close()
