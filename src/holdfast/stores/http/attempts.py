"""What of ours the server knows: the attempts that wait there, those that hold something, who wants work.

Signals are lost while nobody listens. When somebody listens again, those that wait are woken, so that they
ask, and the keeper looks after those that hold. A signal tells only its attempt: here it is known who that
asks through this client is concerned. An entry ends with what ends its attempt; one that was given up in
silence ends with its ttl or its patience.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.clock import boot_time
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.data import data, replace

FIRST_LOOK = 1000  # entries, before those that are over are looked for


@data
class Entry:
    """An attempt that is not over."""

    waits: bool
    end: float  # by our clock, if nothing more is heard of it
    to: str  # who asked through us


@data
class Wanting:
    """An instance that waits for work."""

    types: tuple[str, ...]
    to: str  # who asks through us
    number: int  # of the claim that said so


class Attempts:
    """See the module. Safe with threads."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}  # by key and attempt
        self._wanting: dict[str, Wanting] = {}  # by the instance's id
        self._mutex = threading.Lock()
        self._look_at = FIRST_LOOK

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, request: Any, answer: Any) -> None:
        """Take note of what became of a request."""
        kind = type(request)
        if kind in (r.Acquire, c.Assign) and type(answer) in (r.Granted, c.Assigned):
            self._add(request.key, request.attempt, _held(request))
        elif kind is r.Acquire and type(answer) is r.Queued:
            entry = Entry(True, boot_time() + request.patience, _asker(request))
            self._add(request.key, request.attempt, entry)
        elif kind in (r.Acquire, r.Withdraw, c.Finish):
            self.forget(request)
        elif kind in (r.Release, r.Downgrade):
            if type(answer) not in (r.Refused, r.Granted):  # otherwise a lease is left
                self.forget(request)
        elif kind is r.Renew:
            self._renewed(request, answer)
        elif kind is c.Claim:
            self._claimed(request, answer)
        elif kind in (c.Join, c.Heartbeat):
            if wanting := self._wanting.get(request.id):
                self._wanting[request.id] = replace(wanting, to=_asker(request))
        elif kind is c.Leave:
            self._wanting.pop(request.id, None)

    def forget(self, request: Any) -> None:
        """Take note that the attempt of a request is over."""
        self._entries.pop((request.key, request.attempt), None)

    def signals_for(self, signal: r.Signal) -> list[r.Signal]:
        """Return a signal as it is for each who is concerned."""
        if signal.kind == "over":  # told once for all of ours that wait for the operation
            found = {entry.to for (key, _), entry in self._entries.copy().items() if key == signal.key}
            return [replace(signal, to=to) for to in sorted(found)] if found else [signal]
        if signal.kind == "work":
            wanting = self._wanting.get(signal.attempt)
            return [replace(signal, to=wanting.to)] if wanting is not None else [signal]
        entry = self._entries.get((signal.key, signal.attempt))
        if entry is not None and signal.token:  # it can be entered by: from now on it holds
            entry = Entry(False, boot_time() + signal.expires_in, entry.to)
            self._entries[signal.key, signal.attempt] = entry
        return [replace(signal, to=entry.to)] if entry is not None and entry.to else [signal]

    def missed(self) -> list[r.Signal]:
        """Return the signals that anybody may have missed."""
        signals = [
            r.Signal("granted" if entry.waits else "lost", key, attempt, to=entry.to)
            for (key, attempt), entry in self._entries.copy().items()
        ]
        return signals + [signal for id in self._wanting.copy() for signal in self._wake(id)]

    def waiting(self, request: Any) -> list[r.Signal]:
        """Return the signals that wake what a request has left waiting: its attempt, or its instance."""
        if type(request) is not r.Acquire:
            return self._wake(request.id)
        entry = self._entries.get((request.key, request.attempt))
        return [r.Signal("granted", request.key, request.attempt)] if entry and entry.waits else []

    def _wake(self, id: str) -> list[r.Signal]:
        wanting = self._wanting.get(id)
        return [r.Signal("work", type, id, to=wanting.to) for type in wanting.types] if wanting else []

    def _claimed(self, request: c.Claim, answer: Any) -> None:
        if type(answer) is not c.Claimed:  # it is not alive, or takes no more
            self._wanting.pop(request.id, None)
            return
        for work in answer.works:
            self._add(work.key, work.attempt, _held(request))
        before = self._wanting.get(request.id)
        if before is not None and request.number <= before.number:
            return  # a copy that is late: what was said since counts
        if len(answer.works) < request.limit:
            self._wanting[request.id] = Wanting(request.types, _asker(request), request.number)
        else:
            self._wanting.pop(request.id, None)

    def _add(self, key: str, attempt: str, entry: Entry) -> None:
        self._entries[key, attempt] = entry
        if len(self._entries) >= self._look_at:
            self._drop_what_is_over()

    def _renewed(self, request: r.Renew, answer: r.Renewed) -> None:
        now = boot_time()
        for lease, said in zip(request.leases, answer.leases, strict=True):
            if said.outcome == "lost":
                self.forget(lease)
            elif said.outcome != "unknown":
                end = now + max(lease.ttl, said.expires_in)  # a ttl of 0 only asks
                self._move((lease.key, lease.attempt), end, waits=False)
        for ticket, told in zip(request.tickets, answer.tickets, strict=True):
            if told.outcome == "gone":
                self.forget(ticket)
            else:
                self._move((ticket.key, ticket.attempt), now + ticket.patience, waits=True)

    def _move(self, which: tuple[str, str], end: float, *, waits: bool) -> None:
        """Move an entry's end. A ticket may have been granted since; a lease, entered by the hand-over."""
        entry = self._entries.get(which)
        if entry is not None and (entry.waits or not waits):
            self._entries[which] = Entry(waits, end, entry.to)

    def _drop_what_is_over(self) -> None:
        with self._mutex:
            now = boot_time()
            for which, entry in self._entries.copy().items():
                if entry.end < now:
                    self._entries.pop(which, None)
            self._look_at = max(FIRST_LOOK, 2 * len(self._entries))


def _held(request: r.Acquire | c.Claim | c.Assign) -> Entry:
    return Entry(False, boot_time() + request.ttl, _asker(request))


def _asker(request: r.Acquire | c.Join | c.Heartbeat | c.Claim | c.Assign) -> str:
    return request.client.instance.partition("/")[2]
