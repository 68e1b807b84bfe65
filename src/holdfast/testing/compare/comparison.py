"""Asking two stores the same, and comparing what they answer, whom they signal and what they remember."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Client, Renew, Request, Signal, Watch
from holdfast.stores.base import Store
from holdfast.testing.compare.cluster import ClusterTraffic
from holdfast.testing.compare.locks import Traffic

About = Literal["locks", "cluster"]

TRAFFIC: dict[About, type[Traffic]] = {"locks": Traffic, "cluster": ClusterTraffic}


def compare(
    reference: Store,
    other: Store,
    *,
    seed: int,
    steps: int = 400,
    client: Client,
    look_every: int = 40,
    show: int = 12,
    groups: int = 1,
    about: About = "locks",
) -> None:
    """Put *steps* requests to both stores; raise `AssertionError` at the first different answer.

    *client* must be the one both stores were opened for, so that they signal it directly. Every
    *look_every* steps everything there is to see is compared as well. With *groups* the other store is asked
    for up to that many at once, and the reference for one after the other. *about*: the requests are about
    locks, or about instances and their work, beside locks of the same keys.
    """
    traffic = TRAFFIC[about](random.Random(seed), client)
    sizes = random.Random(seed)
    feeds = Reader(reference), Reader(other)
    heard: list[Signal] = []
    told: list[Signal] = []
    granted: set[Signal] = set()  # so far. A store may tell it again, late, and as a mere hint
    reference.listen(heard.append)
    other.listen(told.append)
    past: deque[str] = deque(maxlen=show)
    for step in range(1, steps + 1):
        size = sizes.randint(1, groups)
        asked = [[traffic.next() for _ in range(size)]]
        if step % look_every == 0:
            asked += [[request] for request in traffic.everything()]
        for group in asked:
            heard.clear()
            told.clear()
            expected = [_comparable_answer(reference.execute(request)) for request in group]
            answers = [_comparable_answer(answer) for answer in _ask(other, group)]
            past += [f"{step}: {each!r}\n      -> {it!r}" for each, it in zip(group, expected, strict=True)]
            past[-1] += f" {_in_order(heard)}"
            for signal in heard:
                if signal.kind == "granted":
                    granted |= {signal, Signal("granted", signal.key, signal.attempt)}
            new = [
                signal
                for place, signal in enumerate(told)
                if signal.kind != "granted" or signal not in (told[:place] if signal in heard else granted)
            ]
            if expected != answers or _comparable(group, heard) != _comparable(group, new):
                raise AssertionError(
                    f"seed {seed}, step {step}: the stores disagree\n"
                    f"  asked     {group}\n"
                    f"  reference {expected}\n"
                    f"            {_in_order(heard)}\n"
                    f"  other     {answers}\n"
                    f"            {_in_order(told)}\n"
                    f"the last steps, with the reference's answers:\n  " + "\n  ".join(past)
                )
            for request, answer in zip(group, expected, strict=True):
                traffic.heard(request, answer)
        if step % look_every == 0 or step == steps:
            watched, seen = (feed.read_on() for feed in feeds)
            if watched != seen:
                raise AssertionError(
                    f"seed {seed}, step {step}: the feeds differ\n  reference {watched}\n  other     {seen}"
                )


@dataclass(eq=False)
class Reader:
    """Somebody who watches all keys of a store, a page at a time."""

    store: Store
    after: int = 0

    def read_on(self) -> dict[str, list[Event]]:
        """Return what is new, by key: the order between keys is the store's own."""
        found: dict[str, list[Event]] = {}
        while True:
            page = self.store.execute(Watch("", after=self.after, limit=7))
            for event in page.events:
                assert event.id > self.after, f"out of order: {event} behind {self.after}"
                self.after = event.id
                found.setdefault(event.key, []).append(replace(event, id=0, number=0))
            if not page.events:
                return found


def _comparable_answer(answer: Any) -> Any:
    """Return an answer as all stores give it.

    Without the places of events; and a key that was swept away and used again may count its events from
    anywhere, if all those before were swept away too.
    """
    if isinstance(answer, tuple) and answer and isinstance(answer[0], Event):
        start = answer[0].number
        return tuple(replace(event, id=0, number=event.number - start) for event in answer)
    return answer


def _ask(store: Store, group: list[Request[Any]]) -> list[Any]:
    return store.execute_many(group) if len(group) > 1 else [store.execute(group[0])]


def _comparable(group: Iterable[Request[Any]], signals: Sequence[Signal]) -> list[Signal]:
    renewals = [request for request in group if isinstance(request, Renew)]
    if any(len({lease.key for lease in each.leases}) < len(each.leases) for each in renewals):
        # A batch is worked off in any order: a head may be told the end of a lease before or after
        # another entry of the same batch moved it.
        signals = [replace(signal, expires_in=0.0) for signal in signals]
    return _in_order(signals)


def _in_order(signals: Sequence[Signal]) -> list[Signal]:
    return sorted(signals, key=lambda signal: (signal.key, signal.attempt, signal.kind, signal.expires_in))
