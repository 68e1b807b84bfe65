"""The thread that keeps a client's leases and tickets alive, and says that its instances are there.

Both clients use it, the asyncio one as well: an event loop that is busy computing must not lose its
leases for it. It starts with the first lease or ticket, sleeps until something is due, and is not woken
by a lease that comes and goes before.
"""

from __future__ import annotations

import math
import random
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.client.options import Wish
from holdfast.client.place import Place
from holdfast.clock import boot_time
from holdfast.core.keeper import Keeper, Kept
from holdfast.core.plans import Grant, Handed
from holdfast.core.requests import Renew, Request, Signal, Sweep, Withdraw
from holdfast.core.settings import Settings
from holdfast.log import warn
from holdfast.signal_mask import block_signals
from holdfast.stores.base import Store

if TYPE_CHECKING:
    from holdfast.core.membership import Membership

SWEEP_LIMIT = 500
AWAKE = -math.inf
CLIENT_CLOSED = "client closed"
DRAINED = "drained"
LEFT = "instance left"
RETURNED = "returned"
RELEASED_ALL = "release_all() was called"

# Losses that somebody here has wanted: they are told, and need no warning.
WANTED = frozenset({CLIENT_CLOSED, DRAINED, LEFT, RETURNED, RELEASED_ALL})

DROPPED = (
    "%s was not released, and nothing refers to its lease any more, so it is given back now. It was taken at"
    " %s. Keep the lease as long as you need the lock, then release it"
)

# The longest sleep while there is something to keep. Sleeping does not count suspend, as our clock does: when
# a machine wakes up, leases are found to be lost soon, and not when they would have been renewed.
NAP = 5.0


class Leash(weakref.ref[Any]):
    """The keeper's own reference to a lease, which does not keep it alive.

    When nobody else has one any more, it goes into the queue that it was made with. No code of ours runs at
    that moment: an interrupt would hit it, and what a finalizer raises is lost.
    """

    __slots__ = ("attempt", "grip", "listed", "place")
    attempt: str
    grip: Any  # the lease itself, if it is left alone until it ends
    listed: bool  # among the leases of the client; those of elections are not
    place: Place  # where it was taken. Not the wish: what that calls may refer to the lease

    def tell(self) -> None:
        """Tell the code that has the lease that it is lost."""
        if (lease := self()) is not None:
            lease._tell()  # noqa: SLF001 - the one thing of a lease that only we call


class KeeperThread:
    """A `Keeper` with a clock, a store and a thread of its own."""

    def __init__(self, store: Store, settings: Settings, on_signal: Callable[[Signal], None]) -> None:
        self._store = store
        self._settings = settings
        self._on_signal = on_signal
        self._keeper = Keeper(settings, random.random)
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._thread: threading.Thread | None = None
        self._starting = False
        self._stopped = False
        self._busy = False  # whether anything came to be kept since the thread last looked
        self._wake_at = math.inf  # when the thread will look again by itself
        self._chores: deque[Callable[[], object]] = deque()
        self._dropped: deque[Leash] = deque()
        self._swept_up_to = ""
        self._sweep_at = math.inf
        if settings.sweep_every is not None and not store.traits.swept:
            # Clients of one fleet should not all sweep at once.
            self._sweep_at = boot_time() + settings.sweep_every * (0.5 + random.random())

    def keep(self, grant: Grant, *, max_hold: float | None, renew: bool, asked: float | None = None) -> Kept:
        """Renew this lease from now on; with *renew* off, only watch it end."""
        with self._mutex:
            kept = self._keeper.keep(grant, max_hold=max_hold, renew=renew, asked=asked)
            self._look_at(min(kept.renew_at, kept.trusted_until))
        return kept

    def keep_for(self, kept: Kept, lease: Any, wish: Wish) -> None:
        """Keep it only as long as somebody has *lease*: what nobody can reach, nobody can release.

        One that is not renewed ends by itself, and is left alone until then.
        """
        leash = Leash(lease, self._dropped.append)
        leash.attempt = kept.grant.attempt
        leash.listed = wish.unless is None
        leash.place = wish.place
        kept.holder = leash
        if kept.renews:
            kept.tell = leash.tell
        else:
            leash.grip = lease

    def pursue(self, request: Withdraw, lasts: float) -> None:
        """Give something back, here, where nobody waits for it: until it is done, or *lasts* is over."""
        with self._mutex:
            if not self._stopped:
                now = boot_time()
                self._keeper.pursue(request, lasts=lasts, now=now)
                self._look_at(now)

    def drop(self, attempt: str) -> None:
        """Stop renewing a lease."""
        with self._mutex:
            self._keeper.drop(attempt)

    def watch(self, kept: Kept) -> None:
        """Watch a lease end that is not renewed any more, and tell of it."""
        with self._mutex:
            self._keeper.watch(kept)
            self._look_at(kept.ends_at)

    def join(self, member: Membership) -> None:
        """Heartbeat for an instance from now on."""
        with self._mutex:
            self._keeper.members[member.id] = member
            self._look_at(member.next_at())

    def part(self, id: str) -> None:
        """Stop heartbeating for an instance."""
        with self._mutex:
            self._keeper.members.pop(id, None)

    def ask_soon(self, request: Request[Any]) -> None:
        """Ask for something once, here, where nobody waits for it. If it fails, that is logged."""
        self.do_soon(lambda: self._store.execute(request))

    def do_soon(self, chore: Callable[[], object], *, finalizing: bool = False) -> None:
        """Do something here, once. *finalizing*: a finalizer may have interrupted whoever has our mutex.

        Then it is seen to after a nap at the latest.
        """
        self._chores.append(chore)
        if not (finalizing and self._mutex.locked()):
            with self._mutex:
                self._look_at(boot_time())

    def wait(self, key: str, attempt: str, asked: float, answered_at: float) -> None:
        """Refresh this ticket from now on. The store was *asked*, and by its own clock has answered then."""
        with self._mutex:
            if attempt not in self._keeper.tickets:
                self._keeper.wait(key, attempt, boot_time())
                self._look_at(self._keeper.tickets[attempt].refresh_at)
            self._keeper.queued(attempt, asked=asked, answered_at=answered_at)

    def heard(self, signal: Signal) -> Signal | Handed:
        """Return what a signal is to the plan that waits for it."""
        with self._mutex:
            return self._keeper.heard(signal)

    def leave(self, attempt: str) -> None:
        """Stop refreshing a ticket, if there is one. Most attempts have none, and need no mutex."""
        if attempt in self._keeper.tickets:
            with self._mutex:
                self._keeper.leave(attempt)

    def hurry(self, attempt: str) -> None:
        """Look at a lease now: a signal says that something happened to it."""
        with self._mutex:
            now = boot_time()
            self._keeper.hurry(attempt, now)
            self._look_at(now)

    def tell(self, kept: Kept | Membership) -> None:
        """Tell the holder that its lease is lost, or an instance that it is: once, whoever notices first."""
        with self._mutex:
            tell, kept.tell = kept.tell, None
        if tell is not None:
            if kept.lost is not None and kept.lost.reason not in WANTED:
                warn("%s", kept.lost)
            tell()

    def tell_gone(self, member: Membership) -> None:
        """Tell an instance that it is lost, and do not heartbeat for it any more."""
        self.part(member.id)
        self.tell(member)

    def in_books(self) -> bool:
        """Tell whether some thread has our mutex at this moment."""
        return self._mutex.locked()

    def kept(self) -> list[Kept]:
        """Return all leases that are kept."""
        with self._mutex:
            return list(self._keeper.leases.values())

    def tickets(self) -> list[tuple[str, str]]:
        """Return (key, attempt) of all tickets that are refreshed."""
        with self._mutex:
            return [(ticket.key, ticket.attempt) for ticket in self._keeper.tickets.values()]

    def pursued(self) -> list[Withdraw]:
        """Return what is still to be given back."""
        with self._mutex:
            return [pursued.request for pursued in self._keeper.pursued.values()]

    def abandon(self) -> list[Kept]:
        """Return what is kept, in a forked child: our mutex may have been held when it forked, for ever."""
        return list(self._keeper.leases.values())

    def stop(self) -> None:
        """Stop renewing anything. What was dropped a moment ago is warned of."""
        with self._mutex:
            self._stopped = True
            self._changed.notify_all()
            leaks = self._take_back(boot_time())
        _warn_of_leaks(leaks)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _look_at(self, when: float) -> None:
        """Make the thread look at *when* at the latest. Called with the mutex held."""
        self._busy = True
        if self._thread is None and not self._starting and not self._stopped:
            self._starting = True
            try:
                threading.Thread(target=self._run, name="holdfast-keeper", daemon=True).start()
            except BaseException:  # an interrupt: it may run or not. If not, the next one starts it
                self._starting = False
                raise
        elif when < self._wake_at:
            self._changed.notify_all()

    def _run(self) -> None:
        block_signals()
        with self._mutex:
            if self._thread is not None:
                return  # another one was faster
            self._thread = threading.current_thread()
            self._wake_at = AWAKE
            if self._stopped:
                return
        if self._store.traits.tells_holders:
            with suppress(Exception):  # signals are hints, and a keeper that died would lose every lease
                self._store.be_reachable()  # here, where nobody waits for it
            with self._mutex:  # and if something was broken before we could be told, we have to ask
                self._keeper.hurry_all(boot_time())
        while True:
            with self._mutex:
                if self._stopped:
                    return
                now = boot_time()
                dropped = self._take_back(now)
                gone = self._keeper.gone(now)  # first: what they had is lost for that reason
                lost = self._keeper.overdue(now)
                request = self._keeper.due(now)
                beats = self._keeper.beats(now)
                withdrawal = self._keeper.withdrawal(now)
                sweep = now >= self._sweep_at and (self._busy or bool(self._keeper.leases))
                if not (dropped or gone or lost or request or beats or withdrawal or self._chores or sweep):
                    self._sleep(now)
                    continue
            _warn_of_leaks(dropped)
            for member in gone:
                self._safely(self.tell_gone, member)
            self._tell(lost)
            if request is not None:
                self._renew(request)
            for member in beats:
                self._beat(member)
            if withdrawal is not None:
                self._withdraw(withdrawal)
            self._do_chores()
            if sweep:
                self._sweep()

    def _sleep(self, now: float) -> None:
        """Sleep until something is due, at most a nap. Called with the mutex held."""
        next_at = self._keeper.next_at()
        if self._busy or next_at < math.inf:
            # Even with nothing to keep at this moment: a lock that is taken and released all the time would
            # else wake us each time it is taken.
            self._wake_at = min(next_at, now + NAP)
            self._busy = False
            self._changed.wait(self._wake_at - now)
        else:
            self._wake_at = math.inf
            self._changed.wait()
        self._wake_at = AWAKE

    def _renew(self, request: Renew) -> None:
        asked = boot_time()
        try:
            answer = self._store.execute(request)
            with self._mutex:
                lost, signals = self._keeper.answered(request, answer, asked=asked)
        except Exception as error:  # noqa: BLE001 - a keeper that died would lose every lease in silence
            warn("renewal failed, trying again: %r", error)
            with self._mutex:
                self._keeper.failed(request, str(error), now=boot_time())
            return
        self._tell(lost)
        for signal in signals:
            self._on_signal(signal)

    def _take_back(self, now: float) -> list[tuple[str, Place]]:
        """Give back what nobody has any more; return what to warn of. Called with the mutex held."""
        leaks = []
        while self._dropped:
            leash = self._dropped.popleft()
            kept = self._keeper.leases.get(leash.attempt)
            if kept is not None:  # else it was released, or lost, before it was dropped
                grant = kept.grant
                self._keeper.pursue(Withdraw(grant.key, grant.attempt, held=True), lasts=grant.ttl, now=now)
                if not kept.leaving:  # else a transaction was to release it, and if it did not, we do
                    leaks.append((grant.key, leash.place))
        return leaks

    def _withdraw(self, request: Withdraw) -> None:
        try:
            self._store.execute(request)
        except Exception as error:  # noqa: BLE001 - as in _renew
            warn("could not give back %r, trying again: %r", request.key, error)
            with self._mutex:
                self._keeper.not_withdrawn(boot_time())
        else:
            with self._mutex:
                self._keeper.withdrawn(request)

    def _tell(self, lost: list[Kept]) -> None:
        for kept in lost:
            self._safely(self.tell, kept)

    def _safely(self, tell: Callable[[Any], None], kept: Kept | Membership) -> None:
        try:
            tell(kept)
        except BaseException as error:  # noqa: BLE001 - a user's sys.exit() ends a thread, but not this one
            warn("telling of %s failed: %r", kept.lost, error)

    def _beat(self, member: Membership) -> None:
        asked = boot_time()
        try:
            answer = self._store.execute(member.request())
            with self._mutex:
                lost = member.answered(answer, asked=asked)
        except Exception as error:  # noqa: BLE001 - as in _renew
            warn("heartbeat of instance %r failed, trying again: %r", member.id, error)
            with self._mutex:
                member.failed(str(error), now=boot_time())
            return
        if lost:
            self._safely(self.tell_gone, member)

    def _do_chores(self) -> None:
        """Do as much as there is now, until a renewal or a heartbeat is due: those have their turn first."""
        for _ in range(len(self._chores)):
            try:
                self._chores.popleft()()
            except Exception as error:  # noqa: BLE001 - as in _renew
                warn("something could not be given back, and ends by itself: %r", error)
            with self._mutex:
                if self._keeper.next_at() <= boot_time():
                    return

    def _sweep(self) -> None:
        every = self._settings.sweep_every or math.inf
        try:
            swept = self._store.execute(Sweep(limit=SWEEP_LIMIT, after=self._swept_up_to))
        except Exception as error:  # noqa: BLE001 - as above
            warn("sweep failed: %r", error)
        else:
            self._swept_up_to = swept.after or ""
            if swept.after is not None:
                every = 1.0  # there is more: go on soon, in small steps
        self._sweep_at = boot_time() + every * (0.5 + random.random())


def _warn_of_leaks(leaks: list[tuple[str, Place]]) -> None:
    """Warn of leases that were dropped, as Python warns of files: in the log, and with a ResourceWarning."""
    for key, place in leaks:
        warn(DROPPED, repr(key), place)
        try:
            warnings.warn_explicit(DROPPED % (repr(key), place), ResourceWarning, place.file, place.line)
        except BaseException as error:  # noqa: BLE001 - the program wants errors, or cannot show it: go on
            hook = type(error), error, None, threading.current_thread()
            with suppress(Exception):
                threading.excepthook(threading.ExceptHookArgs(hook))
