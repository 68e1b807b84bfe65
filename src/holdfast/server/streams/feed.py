"""What happens to locks, as event streams: one reader of the store's feed for all who watch.

A subscriber that begins now, or goes on after a place that we still remember, costs the store nothing. One
that comes back after longer reads its own way through the feed, at its own pace, until it has caught up with
the reader; then it is told what all are told. Whatever decides who gets what happens between two awaits, so
that there is no moment in which an event could pass somebody, or reach them twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from functools import partial

from holdfast.core.backoff import Backoff
from holdfast.core.events import Event
from holdfast.core.plans import WATCH_ANYWAY, WATCH_EVERY
from holdfast.core.requests import Signal, Watch
from holdfast.log import log
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend
from holdfast.server.http import sse
from holdfast.server.http.message import Stream
from holdfast.server.settings import Limits
from holdfast.server.streams.subscribers import Index, Lines, Subscriber, lines

PAGE = 500  # events in one read
REMEMBERED = 2000  # events that those who come back soon are told from memory
DEBOUNCE = 0.01  # seconds from a write to the next read: others may write as well
CATCHING_UP = 4  # reads for those who come back, at once
SENT_AT_ONCE = 64 * 1024  # bytes, to all together, before somebody else has a turn
LOOK_BACK = 5.0  # seconds between looks whether the store's events end before our place
PAUSE = Backoff(WATCH_EVERY, 2.0)

DRAINING = "the server is going away; come back with Last-Event-ID"


class EventHub:
    """See the module. To be used from one event loop. While nobody watches, it does nothing."""

    def __init__(self, backend: Backend, limits: Limits, *, heartbeats: sse.Heartbeats | None = None) -> None:
        self._backend = backend
        self._much = limits.slow_reader // 4  # bytes on their way, with which a reader has enough to do
        self._heartbeats = heartbeats or sse.Heartbeats()
        self.sent = 0  # events, to each who saw them
        self._subscribers: dict[Subscriber, None] = {}
        self._joining: list[Subscriber] = []
        self._index = Index()
        self._recent: deque[tuple[int, str, Lines]] = deque()
        self._begin = 0  # all events after it, up to our place, are in the memory
        self._place: int | None = None  # all events up to it were sent to those who are up to date
        self._reader: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._told = False  # the store tells us when there is more
        self._looked_back = time.monotonic()
        self._catching_up: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(CATCHING_UP)
        backend.on_write(self._written)
        backend.listen(self._signalled)

    @property
    def count(self) -> int:
        """How many there are who watch."""
        return len(self._subscribers)

    def subscribe(self, stream: Stream, wanted: Watch, *, principal: Principal) -> None:
        """Send *stream* what happens to the keys that are *wanted* and that *principal* may see.

        It begins after ``wanted.after``; without one, now: at the place that it is told first.
        """
        subscriber = Subscriber(self, stream, wanted, principal)
        self._subscribers[subscriber] = None
        self._joining.append(subscriber)
        self._heartbeats.add(subscriber.beat)
        stream.on_gone = partial(self.remove, subscriber)
        self._wake.set()
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read(), name="holdfast-feed")

    def place_of(self, subscriber: Subscriber) -> int | None:
        """Return the place up to which everything was sent to it."""
        if not subscriber.live or self._place is None:
            return subscriber.after if subscriber.after >= 0 else None
        return max(self._place, subscriber.after)

    def remove(self, subscriber: Subscriber) -> None:
        """Send it nothing any more."""
        if subscriber in self._subscribers:
            del self._subscribers[subscriber]
            self._heartbeats.remove(subscriber.beat)
            if subscriber.live:
                self._index.remove(subscriber)
            elif subscriber.task is not None:
                subscriber.task.cancel()

    def revoke(self, token_id: str) -> None:
        """End the streams of an access token that is not valid any more."""
        for subscriber in list(self._subscribers):
            if subscriber.principal.token_id == token_id:
                subscriber.dismiss("revoked", sse.REVOKED)

    def drain(self) -> None:
        """End all streams: their readers come back, to another server or to the next one here."""
        for subscriber in list(self._subscribers):
            subscriber.dismiss("draining", DRAINING)

    def close(self) -> None:
        """End everything."""
        self.drain()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _written(self) -> None:
        """Look after requests that may have made events, unless the store tells of those that are made."""
        if not self._told:
            self._wake.set()

    def _signalled(self, signal: Signal) -> None:
        if signal.kind == "events" and not signal.to:
            self._wake.set()

    # Reading.

    async def _read(self) -> None:
        """Read the feed for all, as long as there is anybody."""
        failures = 0
        while self._subscribers:
            self._wake.clear()
            joining, self._joining = self._joining, []  # those who came before we read
            began = time.perf_counter()
            try:
                await self._read_to_its_end()
                await self._look_back()
            except Exception as error:  # noqa: BLE001 - a reader that died would leave all streams silent
                failures += 1
                self._told = False
                if failures == 1:
                    log().warning("could not read events, trying again: %r", error)
                self._joining = joining + self._joining
                await asyncio.sleep(PAUSE.delay(failures, random.random()))
                continue
            if failures:
                log().info("events can be read again, after %d failures", failures)
                failures = 0
            for subscriber in joining:
                self._join(subscriber)
            await self._pause(time.perf_counter() - began)
        self._reader = self._place = None
        self._told = False
        self._recent.clear()

    async def _read_to_its_end(self) -> None:
        if self._place is None:
            self._place = self._begin = (await self._backend.ask(Watch(""))).after
            return
        more = True
        while more:
            wanted = Watch("", after=self._place, limit=PAGE, address=self._backend.instance)
            feed = await self._backend.ask(wanted)
            self._told = feed.tells
            more = feed.after - self._place >= PAGE
            sent = 0
            for event in feed.events:
                sent += self._tell(event)
                if sent >= SENT_AT_ONCE:
                    sent = 0
                    await asyncio.sleep(0)
            self._place = feed.after

    async def _look_back(self) -> None:
        """Go back if the store has, to a backup or a late replica: otherwise all would be silent for long."""
        if time.monotonic() - self._looked_back < LOOK_BACK:
            return
        self._looked_back = time.monotonic()
        last = (await self._backend.ask(Watch(""))).after
        if self._place is not None and last < self._place:
            log().warning(
                "events end at %d, and were read up to %d: it is another store now", last, self._place
            )
            self._place = self._begin = last
            self._recent.clear()
            for subscriber in self._subscribers:
                subscriber.after = min(subscriber.after, last)

    def _tell(self, event: Event) -> int:
        """Send an event to all whom it concerns, and remember it. Return how many bytes that were."""
        told = lines(event)
        count = 1
        behind = []
        for subscriber in self._index.matching(event.key):
            if event.id > subscriber.after:  # otherwise it has read further than we
                subscriber.tell(event.id, event.key, told)
                count += 1
                if subscriber.stream.backlog > self._much:
                    behind.append(subscriber)
        self._recent.append((event.id, event.key, told))
        if len(self._recent) > REMEMBERED:
            self._begin = self._recent.popleft()[0]
        self._place = event.id
        for subscriber in behind:
            self._fall_behind(subscriber)
        return count * len(told[0])

    async def _pause(self, took: float) -> None:
        """Wait until there may be something new. Reading takes half of our time at most."""
        try:
            async with asyncio.timeout(WATCH_ANYWAY if self._told else WATCH_EVERY):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(DEBOUNCE, took))

    # Joining, and falling behind.

    def _join(self, subscriber: Subscriber) -> None:
        """Begin to send to somebody who came before we last read."""
        if subscriber not in self._subscribers:
            return
        assert self._place is not None
        if not 0 <= subscriber.after <= self._place:
            # It wants to begin now. Or no reader of this store was told such a place, unless it was restored.
            subscriber.after = self._place
        if subscriber.after == self._place:
            self._go_live(subscriber)
        else:
            self._start_catching_up(subscriber)

    def _go_live(self, subscriber: Subscriber) -> None:
        subscriber.live = True
        subscriber.task = None
        self._index.add(subscriber)
        subscriber.say_place()

    def _fall_behind(self, subscriber: Subscriber) -> None:
        """Let a reader that does not keep up go on at its own pace, as long as that costs nobody anything."""
        if subscriber in self._subscribers and subscriber.live:
            assert self._place is not None
            self._index.remove(subscriber)
            subscriber.live = False
            subscriber.late = True
            subscriber.after = max(subscriber.after, self._place)
            self._start_catching_up(subscriber)

    def _start_catching_up(self, subscriber: Subscriber) -> None:
        task = asyncio.get_running_loop().create_task(self._catch_up(subscriber))
        subscriber.task = task
        self._catching_up.add(task)
        task.add_done_callback(self._catching_up.discard)

    async def _catch_up(self, subscriber: Subscriber) -> None:
        """Send what somebody has missed, from the store and then from memory, as fast as it is read."""
        failures = 0
        while subscriber in self._subscribers:
            await subscriber.room(self._much)
            if self._place is not None and subscriber.after >= self._begin:
                self._remind(subscriber)
            elif subscriber.late:
                subscriber.dismiss("slow", sse.SLOW)
            else:
                try:
                    await self._read_for(subscriber)
                    failures = 0
                except Exception as error:  # noqa: BLE001 - as above
                    failures += 1
                    if failures == 1:
                        log().warning("could not read missed events, trying again: %r", error)
                    await asyncio.sleep(PAUSE.delay(failures, random.random()))
            if self._place is not None and subscriber.after >= self._place:
                if subscriber in self._subscribers:
                    self._go_live(subscriber)
                return

    async def _read_for(self, subscriber: Subscriber) -> None:
        wanted = subscriber.wanted
        async with self._turns:
            end = self._place or 0
            feed = await self._backend.ask(Watch(wanted.key, wanted.exact, subscriber.after, PAGE))
        # A short page is the last. Up to where we were before, there is nothing else: it may have been swept.
        after = max(feed.after, end) if feed.after - subscriber.after < PAGE else feed.after
        for event in feed.events:
            subscriber.tell(event.id, event.key, lines(event))
            subscriber.after = event.id
            await subscriber.room(self._much)
        subscriber.after = after

    def _remind(self, subscriber: Subscriber) -> None:
        """Send what we remember, or so much of it that the reader has enough to do."""
        for id, key, told in self._recent:
            if id > subscriber.after:
                if subscriber.wants(key):
                    subscriber.tell(id, key, told)
                subscriber.after = id
                if subscriber.stream.backlog > self._much:
                    return
        subscriber.after = max(subscriber.after, self._place or 0)
