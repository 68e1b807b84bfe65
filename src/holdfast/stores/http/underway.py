"""What of ours the server knows: the attempts that wait there, and those that hold something.

Signals are lost while nobody listens. Whoever listens again wakes those that wait, so that they ask, and
has the keeper look after those that hold. And a signal tells only its attempt: who behind this client is
concerned is known here. Entries end with what ends an attempt; what was given up in silence ends with its
ttl or its patience.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.clock import boot_time
from holdfast.core.data import data, replace
from holdfast.core.requests import (
    Acquire,
    Downgrade,
    Granted,
    Queued,
    Refused,
    Release,
    Renew,
    Renewed,
    Signal,
    Withdraw,
)

FIRST_LOOK = 1000  # entries, before those that are over are looked for


@data
class Entry:
    """An attempt that is not over."""

    waits: bool
    end: float  # by our clock, if nothing more is heard of it
    to: str  # who behind us asked


class Underway:
    """See the module. Safe with threads."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}  # by key and attempt
        self._mutex = threading.Lock()
        self._look_at = FIRST_LOOK

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, request: Any, answer: Any) -> None:
        """Take note of what became of a request."""
        kind = type(request)
        if kind is Acquire:
            if type(answer) is Granted:
                self._add(request, Entry(False, boot_time() + request.ttl, _behind(request)))
            elif type(answer) is Queued:
                self._add(request, Entry(True, boot_time() + request.patience, _behind(request)))
            else:
                self.forget(request)
        elif kind is Withdraw or (kind in (Release, Downgrade) and type(answer) not in (Refused, Granted)):
            self.forget(request)
        elif kind is Renew:
            self._renewed(request, answer)

    def forget(self, request: Any) -> None:
        """Take note that the attempt of a request is over."""
        self._entries.pop((request.key, request.attempt), None)

    def signals_for(self, signal: Signal) -> list[Signal]:
        """Return a signal as it is for each who is concerned."""
        if signal.kind == "over":  # told once for all of ours that wait for the operation
            found = {entry.to for (key, _), entry in self._entries.copy().items() if key == signal.key}
            return [replace(signal, to=to) for to in sorted(found)] if found else [signal]
        entry = self._entries.get((signal.key, signal.attempt))
        return [replace(signal, to=entry.to)] if entry is not None and entry.to else [signal]

    def missed(self) -> list[Signal]:
        """Return the signals that anybody may have missed."""
        return [
            Signal("granted" if entry.waits else "lost", key, attempt, to=entry.to)
            for (key, attempt), entry in self._entries.copy().items()
        ]

    def _add(self, request: Acquire, entry: Entry) -> None:
        self._entries[request.key, request.attempt] = entry
        if len(self._entries) >= self._look_at:
            self._drop_what_is_over()

    def _renewed(self, request: Renew, answer: Renewed) -> None:
        now = boot_time()
        for lease, said in zip(request.leases, answer.leases, strict=True):
            if said.outcome == "lost":
                self.forget(lease)
            elif said.outcome != "unknown":
                self._move((lease.key, lease.attempt), now + lease.ttl, waits=False)
        for ticket, told in zip(request.tickets, answer.tickets, strict=True):
            if told.outcome == "gone":
                self.forget(ticket)
            else:
                self._move((ticket.key, ticket.attempt), now + ticket.patience, waits=True)

    def _move(self, which: tuple[str, str], end: float, *, waits: bool) -> None:
        """Move an entry's end, if it still is what a batch took it for: it may have been granted since."""
        entry = self._entries.get(which)
        if entry is not None and entry.waits is waits:
            self._entries[which] = Entry(waits, end, entry.to)

    def _drop_what_is_over(self) -> None:
        with self._mutex:
            now = boot_time()
            for which, entry in self._entries.copy().items():
                if entry.end < now:
                    self._entries.pop(which, None)
            self._look_at = max(FIRST_LOOK, 2 * len(self._entries))


def _behind(request: Acquire) -> str:
    return request.client.instance.partition("/")[2]
