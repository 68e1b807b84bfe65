"""What the memory store keeps: locks in shards, instances, work, events and access tokens."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any

from holdfast.core.access import AccessToken
from holdfast.core.cluster import Finish, InstanceState, Join, WorkState, WorkView
from holdfast.core.events import Event
from holdfast.core.requests import NotHeld
from holdfast.stores.base import REMEMBER, Listener, micros
from holdfast.stores.memory.lock import HeldBy, Lock

SHARDS = 64


class Instance:
    """Somebody who has joined a cluster."""

    __slots__ = ("asked_at", "beat_at", "claims", "client", "end", "joined_at", "request", "state", "wants")

    def __init__(self, request: Join, now: int) -> None:
        self.request = request
        self.client = request.client
        self.state: InstanceState = "alive"
        self.joined_at = self.beat_at = self.asked_at = now
        self.end = now + micros(request.ttl)
        self.claims = 0  # the number of the last
        self.wants: tuple[str, ...] = ()

    def seen_at(self, now: int) -> InstanceState:
        """Return the state at an instant, whether or not anybody has declared it."""
        return "dead" if self.state in ("alive", "draining") and self.end <= now else self.state


class Work:
    """Something to be done for a key."""

    def __init__(self, key: str, data: str, max_tries: int, now: int, due: int) -> None:
        self.key = key
        self.data = data
        self.max_tries = max_tries
        self.offered_at = now
        self.due = due
        self.state: WorkState = "offered"
        self.text = ""
        self.tries = self.token = 0
        self.instance = self.attempt = ""
        self.claim = 0  # the number of the claim that took it
        self.assigned_at: int | None = None

    def end(self, request: Finish, now: int) -> None:
        """Bring work to the state in which its assignment has ended."""
        at = None if request.at is None else micros(request.at)
        if request.data is not None:
            self.data = request.data
        if request.ending == "returned":
            self.tries -= 1
            if at is not None:
                self.state, self.due = "offered", at
            return
        self.text = request.text
        if request.ending == "completed":
            self.state, self.due = "completed", now
            if at is not None:
                self.state, self.due, self.tries = "offered", at, 0
        elif request.retry is not None and not (self.max_tries and self.tries >= self.max_tries):
            self.state, self.due = "offered", now + micros(request.retry) if at is None else at
        else:
            self.state, self.due = "failed", now

    def view(self) -> WorkView:
        """Return the work as others may see it."""
        return WorkView(
            self.key,
            self.state,
            self.data,
            self.text,
            self.tries,
            self.max_tries,
            self.instance,
            self.token,
            self.offered_at / 1e6,
            None if self.assigned_at is None else self.assigned_at / 1e6,
            self.due / 1e6,
        )


class EndedAttempt:
    """How an attempt ended, and until when that is remembered."""

    __slots__ = ("by", "reason", "told", "until", "why")

    def __init__(
        self, why: str, now: int, by: str | None = None, reason: str | None = None, told: Any = None
    ) -> None:
        self.why = why
        self.by = by
        self.reason = reason
        self.told = told  # what the attempt is answered when it asks again, if that is more than `answer`
        self.until = now + REMEMBER[why]

    def answer(self) -> NotHeld:
        """Say how it ended."""
        if self.why == "broken":
            return NotHeld("broken", self.by, self.reason)
        return NotHeld("expired" if self.why == "expired" else "already")


class Shard:
    """Some of the keys, with a mutex of their own."""

    __slots__ = ("ended", "held_by", "history", "locks", "mutex", "unplaced", "waited_for")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.locks: dict[str, Lock] = {}
        self.held_by: HeldBy = {}  # so that nobody has to walk through all locks to know
        self.ended: dict[tuple[str, str], EndedAttempt] = {}
        self.history: dict[str, list[Event]] = {}
        self.unplaced: set[str] = set()  # keys with events that have no place in the feed yet
        self.waited_for: set[str] = set()  # keys with tickets, and some that had one lately

    def new_lock(self, key: str, token: int) -> Lock:
        """Add a key that was not there."""
        lock = self.locks[key] = self.unseen_lock(key, token)
        return lock

    def unseen_lock(self, key: str, token: int) -> Lock:
        """Return a key that is not there; its events go on after those that are remembered."""
        events = self.history.get(key)
        return Lock(key, token, events[-1].number if events else 0, self.held_by)

    def find_ended(self, key: str, attempt: str, now: int) -> EndedAttempt | None:
        """Return how an attempt ended, if it is remembered to have ended."""
        ended = self.ended.get((key, attempt))
        return ended if ended is not None and ended.until > now else None

    def queues(self) -> list[Lock]:
        """Return the locks that somebody waits for."""
        found = [self.locks[key] for key in self.waited_for if key in self.locks]
        found = [lock for lock in found if lock.tickets]
        self.waited_for = {lock.key for lock in found}
        return found


class World:
    """What the clients of one ``memory://name`` share."""

    def __init__(self) -> None:
        self.id = os.urandom(16).hex()
        self.shards = tuple(Shard() for _ in range(SHARDS))
        self.listeners: dict[str, Listener] = {}
        self.floor = 0
        self.feed: list[Event] = []  # in the order of their places
        self.watchers: set[str] = set()  # addresses to be told of the next event
        self.stirred = False  # an event was written that they were not told of yet
        self.places = 0  # how many were given
        self.access: dict[str, AccessToken] = {}  # by id
        self.access_mutex = threading.Lock()
        self.instances: dict[str, Instance] = {}  # by id
        self.works: dict[str, Work] = {}  # by key
        self.cluster_mutex = threading.Lock()  # of these two; taken before any shard's
        self.feed_mutex = threading.Lock()  # taken before any shard's

    def shard(self, key: str) -> Shard:
        return self.shards[hash(key) % SHARDS]

    def awaiting_events(self) -> list[str]:
        """Return who is to be told that there are events, each once."""
        self.stirred = False
        told: list[str] = []
        with suppress(KeyError):  # none is left: other threads take them too
            while True:
                told.append(self.watchers.pop())
        return told


def has_ended(token: AccessToken, now: int) -> bool:
    """Tell whether the end of a token has come."""
    return token.expires_at is not None and micros(token.expires_at) <= now
