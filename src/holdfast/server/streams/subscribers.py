"""Those who watch events: what each wants and may see, and who of them all is concerned by a key."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Protocol

from holdfast.core.data import as_dict
from holdfast.core.events import Event
from holdfast.core.requests import Watch
from holdfast.server.admission.access import Principal
from holdfast.server.http import sse
from holdfast.server.http.message import Stream
from holdfast.server.replies import without_others

NOW = -1  # the place of somebody who begins now, until it is known
LOOK_AGAIN = 0.25  # seconds


Lines = tuple[bytes, bytes]  # an event for those who may see everything, and for all others


def lines(event: Event) -> Lines:
    """Return an event as it is sent."""
    whole = sse.event(event.kind, as_dict(event), event.id)
    part = without_others(event)
    return whole, whole if part is event else sse.event(part.kind, as_dict(part), part.id)


class Hub(Protocol):
    """What sends events to subscribers."""

    sent: int  # events, to each who saw them

    def place_of(self, subscriber: Subscriber) -> int | None: ...
    def remove(self, subscriber: Subscriber) -> None: ...


class Subscriber:
    """One stream of events."""

    def __init__(self, hub: Hub, stream: Stream, wanted: Watch, principal: Principal) -> None:
        self._hub = hub
        self.stream = stream
        self.wanted = wanted
        self.principal = principal
        self._sees_all = principal.everywhere("observe")
        self.after = NOW if wanted.after is None else wanted.after  # all up to it was sent, or is not wanted
        self.live = False  # it is told what all are told
        self.late = False  # it was, and did not keep up
        self.task: asyncio.Task[None] | None = None  # which catches up
        self._said: int | None = None  # the place that its reader knows

    def wants(self, key: str) -> bool:
        """Tell whether *key* is one of those that are watched."""
        return key == self.wanted.key if self.wanted.exact else key.startswith(self.wanted.key)

    def tell(self, id: int, key: str, lines: Lines) -> None:
        """Send an event, if its key may be seen: now, whatever was allowed a moment ago."""
        if not self.principal.may("observe", key):
            return
        if self.stream.send(lines[not self._sees_all]):
            self._said = id
            self._hub.sent += 1
        else:
            self._hub.remove(self)

    def say_place(self) -> bool:
        """Tell the reader its place, if it knows another."""
        place = self._hub.place_of(self)
        if place is None or place == self._said:
            return False
        self._said = place
        if not self.stream.send(sse.place(place)):
            self._hub.remove(self)
        return True

    def beat(self) -> None:
        """Say that we are still there, and how far we are."""
        if not self.say_place() and not self.stream.send(sse.heartbeat()):
            self._hub.remove(self)

    def dismiss(self, reason: sse.Reason, detail: str) -> None:
        """End the stream."""
        place = self._hub.place_of(self)
        self._hub.remove(self)
        self.stream.end(sse.goodbye(reason, detail, place))

    async def room(self, much: int) -> None:
        """Wait until no more than *much* is on its way to the reader."""
        while self.stream.backlog > much:
            ready = asyncio.Event()
            self.stream.on_room = ready.set
            # A stream that has not begun yet says nothing, so we look now and then as well.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN):
                    await ready.wait()
        self.stream.on_room = None


class Index:
    """Who is concerned by a key, among thousands: by dictionaries, however many watch something else."""

    def __init__(self) -> None:
        # By a key or prefix, and whether it is a key.
        self._watching: dict[tuple[str, bool], dict[Subscriber, None]] = {}
        self._lengths: Counter[int] = Counter()  # of the prefixes: few, however many those are

    def add(self, subscriber: Subscriber) -> None:
        """Take one in."""
        key, exact = what = subscriber.wanted.key, subscriber.wanted.exact
        if what not in self._watching and not exact:
            self._lengths[len(key)] += 1
        self._watching.setdefault(what, {})[subscriber] = None

    def remove(self, subscriber: Subscriber) -> None:
        """Forget one."""
        key, exact = what = subscriber.wanted.key, subscriber.wanted.exact
        del self._watching[what][subscriber]
        if not self._watching[what]:
            del self._watching[what]
            if not exact:
                self._lengths -= Counter([len(key)])

    def matching(self, key: str) -> list[Subscriber]:
        """Return who is concerned."""
        found = list(self._watching.get((key, True), ()))
        for length in self._lengths:
            if length <= len(key):
                found += self._watching.get((key[:length], False), ())
        return found
