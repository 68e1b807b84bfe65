"""Handlers of what only looks: one lock, many, their history, and what happens to them."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Feed, Watch
from holdfast.core.wire.shapes import Whole
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.http.message import Response, Stream
from holdfast.server.pages import seen_page
from holdfast.server.replies import answered, listed, missing, page, without_others
from holdfast.server.streams.feed import EventHub
from holdfast.server.streams.signals import SignalStreams

_PLACE = Whole()


class LockViews:
    """See the module."""

    def __init__(self, backend: Backend, events: EventHub, signals: SignalStreams, budget: Budget) -> None:
        self._backend = backend
        self._events = events
        self._signals = signals
        self._budget = budget

    async def inspect(self, call: Call) -> Response:
        """Look at one lock."""
        view = await self._backend.ask(call.request())
        return answered(view) if view else missing(f"{call.named!r} was never used, or long ago")

    async def history(self, call: Call) -> Response:
        """Read what happened to a lock."""
        events = await self._backend.ask(call.request())
        return await listed("events", _seen(call, events))

    async def list(self, call: Call) -> Response:
        """Look at many locks: at those that the caller may see, in the order of their keys."""
        return await page(await seen_page(self._backend, call.request(), call.principal))

    async def events(self, call: Call) -> Response | Stream:
        """Read what happens, as far as the caller may see it."""
        given = call.given
        if given["key"] is not None:
            call.require("observe", given["key"])
        exact = given["key"] is not None
        named = given["key"] or given["prefix"] or ""
        address = self._signals.own(given["address"], call.principal)
        wanted = Watch(named, exact, given["after"], given["limit"], address)
        if call.wants_stream:
            return self._stream_events(call, wanted)
        feed = await self._feed(call, wanted)
        return await page(replace(feed, events=_seen(call, feed.events)))

    async def _feed(self, call: Call, wanted: Watch) -> Feed:
        """Read a page of events. Where it ends must not tell of keys that the caller may not see."""
        if wanted.exact or _sees_all(call, wanted.key):
            return await self._backend.ask(wanted)
        # A page of a prefix ends after so many events of it, so it is cut by places alone instead.
        feed = await self._backend.ask(replace(wanted, key=""))
        seen = tuple(each for each in feed.events if each.key.startswith(wanted.key))
        return replace(feed, events=seen)

    def _stream_events(self, call: Call, wanted: Watch) -> Stream:
        last = call.http.headers.get("last-event-id", "")
        after = _PLACE.read_text(last, "Last-Event-ID") if last else wanted.after
        stream = Stream()
        with self._budget.stream(call.principal, stream):
            self._events.subscribe(stream, replace(wanted, after=after), principal=call.principal)
        return stream

    async def signals(self, call: Call) -> Stream:
        """Have a client woken."""
        stream = Stream()
        with self._budget.stream(call.principal, stream):
            self._signals.open(stream, call.principal, **call.given)
        return stream


def _seen(call: Call, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return what the caller may see of events."""
    if call.principal.everywhere("observe"):
        return events
    return tuple(without_others(each) for each in events if call.principal.may("observe", each.key))


def _sees_all(call: Call, prefix: str) -> bool:
    """Tell whether the caller may see every key that begins so."""
    return any(right.prefix and prefix.startswith(right.key) for right in call.principal.ranges("observe"))
