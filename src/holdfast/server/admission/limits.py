"""How much of everything one principal may have, and who has how much of it now.

All that one principal's requests cost the others is counted here: requests, streams, waits, places in queues,
leases, keys. What is counted ends by itself, as leases do, so nothing has to be given back to be forgotten.
No request walks over all that there is, and a principal that asks for nothing is forgotten after a while.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast.core.cluster import instance_key
from holdfast.core.plans import Clock
from holdfast.core.requests import Acquire
from holdfast.errors import LimitExceeded, TooManyRequests
from holdfast.server.admission.access import Principal
from holdfast.server.admission.expiring_set import ExpiringSet
from holdfast.server.http.message import Stream
from holdfast.server.settings import Limits

KEYS_WITHIN = 3600.0  # seconds in which distinct keys are counted
_ENDING = ("tickets", "leases", "keys", "instances")  # what ends by itself
TIDY_EVERY = 16  # requests until somebody's account is tidied, in turn


class _Account:
    """What one principal has."""

    def __init__(self, now: float, credit: float) -> None:
        self.asked_at = now
        self.credit = credit  # requests that may come at once
        self.asking = 0  # acquires that the store has not answered yet
        self.streams = 0
        self.waiters = 0
        self.tickets = ExpiringSet()
        self.leases = ExpiringSet()
        self.keys = ExpiringSet()
        self.instances = ExpiringSet()

    @property
    def empty(self) -> bool:
        return not (
            self.asking or self.streams or self.waiters or any(getattr(self, each) for each in _ENDING)
        )


class Asking:
    """An acquire that the store is asked for. Counted inside, or from its beginning to its end."""

    __slots__ = ("_account",)

    def __init__(self, account: _Account) -> None:
        self._account = account

    def begin(self) -> None:
        """Count it."""
        self._account.asking += 1

    def end(self) -> None:
        """Count it no more."""
        self._account.asking -= 1

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: object) -> None:
        self.end()


class Budget:
    """See the module. Tokens of the same name share what they may have. To be used from one thread."""

    def __init__(self, limits: Limits, *, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._requests = 0

    def __len__(self) -> int:
        return len(self._accounts)

    def has(self, principal: Principal) -> dict[str, int]:
        """Return how much of what they have."""
        now, account = self._clock(), self._account(principal)
        counted = {name: getattr(account, name).count(now) for name in _ENDING}
        return {"streams": account.streams, "waiters": account.waiters, **counted}

    def total(self, what: Literal["leases", "tickets"]) -> int:
        """Return how many all have together, with some that have ended already. For those who watch."""
        return sum(len(getattr(account, what)) for account in self._accounts.values())

    def asked(self, principal: Principal, cost: float = 1.0) -> None:
        """Count a request; raise `TooManyRequests` if there were too many within the last second."""
        self._requests += 1
        if self._requests % TIDY_EVERY == 0:
            self._tidy_one()
        rate = self._limits.rate
        if not rate:
            return
        now, account = self._clock(), self._account(principal)
        account.credit = min(self._burst, account.credit + (now - account.asked_at) * rate)
        account.asked_at = now
        if account.credit < 1:
            wait = (1 - account.credit) / rate
            raise TooManyRequests(
                wait,
                f"{_who(principal)} asked more than {rate:g} times a second; try again in {wait:.3f} s,"
                " or have limits.rate raised",
            )
        account.credit -= cost

    @contextmanager
    def stream(self, principal: Principal, stream: Stream) -> Iterator[None]:
        """Count *stream* until it is gone. Inside, hand it to whoever writes to it."""
        account = self._take(principal, "streams", "close some")
        try:
            yield
        except BaseException:
            account.streams -= 1
            raise
        told = stream.on_gone

        def gone() -> None:
            account.streams -= 1
            if told is not None:
                told()

        stream.on_gone = gone

    @contextmanager
    def waiter(self, principal: Principal) -> Iterator[None]:
        """Count somebody for whom the server waits, for as long as it does."""
        account = self._take(principal, "waiters", "wait for fewer locks at once")
        try:
            yield
        finally:
            account.waiters -= 1

    def check_acquire(self, principal: Principal, request: Acquire) -> None:
        """Raise `LimitExceeded` if they may not have one more key, lease, or place in a queue."""
        self.check_lease(principal, request.key, request.attempt, request.ttl, waits=request.wait)

    def check_lease(
        self, principal: Principal, key: str, attempt: str, ttl: float, *, waits: bool = False
    ) -> None:
        """Raise `LimitExceeded` if they may not have one more key, lease, or place to wait; count the key."""
        self.check_ttl(ttl)
        account, name = self._account(principal), _name(key, attempt)
        self._check_key(principal, account, key)
        if name not in account.leases:
            self._check_leases(principal, account)
        if waits and name not in account.tickets:
            advice = "in queues; withdraw some"
            self._check_room(principal, "waiters", account.tickets, advice, under_way=account.asking)
        account.keys.put(key, self._clock() + KEYS_WITHIN)

    def room_for_leases(self, principal: Principal, wanted: int) -> int:
        """Return how many leases of *wanted* they may still have; raise `LimitExceeded` if it is none."""
        account = self._account(principal)
        self._check_leases(principal, account)
        free = self._limits.leases - account.asking - account.waiters - len(account.leases)
        return max(1, min(wanted, free))

    def _check_leases(self, principal: Principal, account: _Account) -> None:
        # What is under way may become a lease, or a place in a queue: otherwise many at once are too many.
        under_way = account.asking + account.waiters
        advice = "; release some, or let them end"
        self._check_room(principal, "leases", account.leases, advice, under_way=under_way)

    def check_join(self, principal: Principal, id: str, ttl: float) -> None:
        """Raise `LimitExceeded` if they may not have one more instance."""
        self.check_ttl(ttl)
        instances = self._account(principal).instances
        if id not in instances:
            self._check_room(principal, "instances", instances, "; have some leave, or let them end")
        self.check_key(principal, instance_key(id))  # what has left is remembered for a while

    def beat(self, principal: Principal, id: str, ttl: float) -> None:
        """Count an instance that has joined, or goes on, until it ends."""
        self._account(principal).instances.put(id, self._clock() + ttl)

    def gone(self, principal: Principal, id: str) -> None:
        """Count an instance no more."""
        self._account(principal).instances.drop(id)

    def check_key(self, principal: Principal, key: str) -> None:
        """Raise `LimitExceeded` if they may not use one more key; count it."""
        account = self._account(principal)
        self._check_key(principal, account, key)
        account.keys.put(key, self._clock() + KEYS_WITHIN)

    def _check_key(self, principal: Principal, account: _Account, key: str) -> None:
        keys = account.keys
        if key not in keys:
            self._check_room(principal, "keys", keys, "within the last hour; use fewer names")

    def _check_room(
        self, principal: Principal, what: str, names: ExpiringSet, advice: str, *, under_way: int = 0
    ) -> None:
        most = getattr(self._limits, what)
        if names.is_full(most - under_way, self._clock()):
            self._refuse(principal, what, len(names), most, advice)

    def asking(self, principal: Principal) -> Asking:
        """Count an acquire that the store is asked for, until its answer is counted."""
        return Asking(self._account(principal))

    def check_ttl(self, ttl: float, *, renewing: bool = False) -> None:
        """Raise `LimitExceeded` for a lease that would be too short or too long.

        A renewal may be as short as it likes: of a lease that comes to its max_hold, beside many others.
        """
        least, most = self._limits.shortest_ttl, self._limits.longest_ttl
        if ttl < least and not renewing:
            text = f"ttl is {ttl:g} s; here it must be {least:g} s at least"
            raise LimitExceeded("shortest_ttl", least, text)
        if ttl > most:
            text = f"ttl is {ttl:g} s; here it must be {most:g} s at most; renew it instead"
            raise LimitExceeded("longest_ttl", most, text)

    def check_wait(self, timeout: float) -> float:
        """Return *timeout*; raise `LimitExceeded` if nobody is waited for as long as that."""
        most = self._limits.longest_wait
        if timeout > most:
            raise LimitExceeded(
                "longest_wait",
                most,
                f"timeout is {timeout:g} s; one request waits for {most:g} s at most: ask again with the same"
                " attempt and wait=true, which keeps the place in the queue",
            )
        return timeout

    def granted(self, principal: Principal, key: str, attempt: str, ttl: float) -> None:
        """Count a lease that was granted, or renewed, until it ends."""
        account, name = self._account(principal), _name(key, attempt)
        account.tickets.drop(name)
        account.leases.put(name, self._clock() + ttl)

    def entered(self, principal: Principal, key: str, attempt: str, lasts: float) -> bool:
        """Count a lease that can be entered by its hand-over. False, and not counted: they have too many.

        Then its caller has to ask for it, and hears why not.
        """
        account = self._account(principal)
        most = self._limits.leases - account.asking - account.waiters
        if _name(key, attempt) not in account.leases and account.leases.is_full(most, self._clock()):
            return False
        self.granted(principal, key, attempt, lasts)
        return True

    def queued(self, principal: Principal, key: str, attempt: str, patience: float) -> None:
        """Count a place in a queue that was given, or refreshed, until it is forgotten."""
        self._account(principal).tickets.put(_name(key, attempt), self._clock() + patience)

    def left(self, principal: Principal, key: str, attempt: str) -> None:
        """Count a place in a queue no more. Whether there is a lease instead, only the store could say."""
        self._account(principal).tickets.drop(_name(key, attempt))

    def ended(self, principal: Principal, key: str, attempt: str) -> None:
        """Count an attempt no more."""
        account, name = self._account(principal), _name(key, attempt)
        account.leases.drop(name)
        account.tickets.drop(name)

    @property
    def _burst(self) -> float:
        return max(self._limits.rate, 1.0)

    def _account(self, principal: Principal) -> _Account:
        account = self._accounts.get(principal.name)
        if account is None:
            account = self._accounts[principal.name] = _Account(self._clock(), self._burst)
        return account

    def _take(self, principal: Principal, what: str, advice: str) -> _Account:
        account = self._account(principal)
        has: int = getattr(account, what)
        most: int = getattr(self._limits, what)
        if has >= most:
            self._refuse(principal, what, has, most, f"; {advice}")
        setattr(account, what, has + 1)
        return account

    def _refuse(self, principal: Principal, what: str, has: int, most: int, advice: str) -> None:
        text = f"{_who(principal)} has {has} {what} of at most {most}"
        text += advice if advice.startswith(";") else f" {advice}"
        raise LimitExceeded(what, most, f"{text}, or have limits.{what} raised")

    def _tidy_one(self) -> None:
        """Look at one account: drop what has ended, and the account itself if there is nothing in it."""
        if self._accounts:
            now = self._clock()
            name, account = next(iter(self._accounts.items()))
            for each in _ENDING:
                getattr(account, each).count(now)
            if account.empty and now - account.asked_at > 1.0:  # by then the credit is full again
                del self._accounts[name]
            else:
                self._accounts.move_to_end(name)


def _name(key: str, attempt: str) -> str:
    return f"{key}\n{attempt}"  # neither has line ends


def _who(principal: Principal) -> str:
    return principal.name or "everybody together"
