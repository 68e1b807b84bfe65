"""Handlers of what only looks: one lock, many, their history, and what happens to them."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Feed, History, Inspect, List, Page, Watch
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.handlers.call import Call
from holdfast.server.handlers.replies import answered, listed, refused, without_others
from holdfast.server.handlers.visible import pages
from holdfast.server.http.message import Response, Stream
from holdfast.server.shapes import Whole
from holdfast.server.streams.feed import EventHub
from holdfast.server.streams.signalling import SignalStreams

NOTHING = {"answer": "nothing"}
_PLACE = Whole()


class Looking:
    """See the module."""

    def __init__(self, backend: Backend, events: EventHub, signals: SignalStreams, budget: Budget) -> None:
        self._backend = backend
        self._events = events
        self._signals = signals
        self._budget = budget

    async def inspect(self, call: Call) -> Response:
        """Look at one lock."""
        view = await self._backend.ask(Inspect(call.named, call.given["now"]))
        if view is None:
            unknown = errors.RequestRefused(404, f"{call.named!r} was never used, or long ago")
            return refused(unknown, NOTHING)
        return answered(view)

    async def history(self, call: Call) -> Response:
        """Read what happened to a lock."""
        events = await self._backend.ask(History(call.named, call.given["limit"]))
        return listed("events", _seen(call, events))

    async def list(self, call: Call) -> Response:
        """Look at many locks: at those that the caller may see, in the order of their keys."""
        wanted = List(**call.given)
        if call.principal.everywhere("observe"):
            return answered(await self._backend.ask(wanted))
        locks, after = await pages(self._backend, wanted, call.principal.ranges("observe"), "locks")
        return answered(Page(locks, after))

    async def events(self, call: Call) -> Response | Stream:
        """Read what happens, as far as the caller may see it."""
        given = call.given
        if given["key"] is not None:
            call.require("observe", given["key"])
        key, exact = (given["prefix"] or "", False) if given["key"] is None else (given["key"], True)
        if call.wants_stream:
            return self._stream_events(call, Watch(key, exact, given["after"]))
        feed = await self._feed(call, Watch(key, exact, given["after"], given["limit"]))
        return answered(Feed(_seen(call, feed.events), feed.after))

    async def _feed(self, call: Call, wanted: Watch) -> Feed:
        """Read a page of events. Where it ends must not tell of keys that the caller may not see."""
        if wanted.exact or _sees_all(call, wanted.key):
            return await self._backend.ask(wanted)
        # A page of a prefix ends behind so many events of it, so it is cut by places alone instead.
        feed = await self._backend.ask(replace(wanted, key=""))
        return Feed(tuple(each for each in feed.events if each.key.startswith(wanted.key)), feed.after)

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

    async def clients(self, call: Call) -> Response:
        """See who is connected: all, or only those of the same principal."""
        everyone = call.principal.everywhere("admin")
        items: tuple[Any, ...] = tuple(
            each for each in self._signals.listing() if everyone or each["principal"] == call.principal.name
        )
        return listed("clients", items)


def _seen(call: Call, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return what the caller may see of events."""
    if call.principal.everywhere("observe"):
        return events
    return tuple(without_others(each) for each in events if call.principal.may("observe", each.key))


def _sees_all(call: Call, prefix: str) -> bool:
    """Tell whether the caller may see every key that begins so."""
    return any(right.prefix and prefix.startswith(right.key) for right in call.principal.ranges("observe"))
