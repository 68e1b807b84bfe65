"""Locks in this process only: the reference store, the shortest honest reading of the protocol.

`memory://` is private to its client; `memory://name` is shared by all clients of the process that say
that name. Keys live in shards, each with its own mutex, held for dictionary work only: different keys
do not wait for one another, and nothing is ever awaited inside.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.clock import boot_time
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.errors import SettingsError
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, micros, one_by_one
from holdfast.stores.memory.instances import Instances
from holdfast.stores.memory.lock import Post
from holdfast.stores.memory.state import World, has_ended
from holdfast.stores.memory.views import Views

A = TypeVar("A")

# By process as well: a forked child must not join a world whose mutexes may be held by the parent's threads.
_shared: weakref.WeakValueDictionary[tuple[int, str], World] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()

# Epoch time that neither steps nor stands still in suspend: tokens and leases need no more than that.
_EPOCH = micros(time.time() - boot_time())


def from_url(url: str, options: StoreOptions) -> MemoryStore:
    """Return the store for ``memory://`` or ``memory://name``."""
    name = url.removeprefix("memory://")
    if any(sign in name for sign in "/?#"):
        raise SettingsError(f"{url!r} has more than a name: use memory:// or memory://name")
    return MemoryStore(options, name)


def _world_of(name: str) -> World:
    if not name:
        return World()
    with _shared_mutex:
        return _shared.setdefault((os.getpid(), name), World())


class MemoryStore(Instances, Views):
    """See the module. One object a client; they may share a world."""

    traits = Traits(
        durable=False, signals=True, blocking=False, repeats=False, tells_watchers=True, enters=True
    )

    def __init__(self, options: StoreOptions, name: str = "") -> None:
        self._name = name
        self._world = _world_of(name)
        self._client = options.client
        self._level = options.history
        self._answer: dict[type, Callable[..., Any]] = {
            r.Acquire: self._acquire,
            r.Release: self._release,
            r.Withdraw: self._withdraw,
            r.Break: self._break,
            r.Downgrade: self._downgrade,
            r.Resize: self._resize,
            r.Renew: self._renew,
            r.Inspect: self._inspect,
            r.History: self._history,
            r.List: self._list,
            r.Watch: self._watch,
            r.Sweep: self._sweep,
            r.Probe: lambda *_: r.Health(),
            GrantAccess: self._grant_access,
            RevokeAccess: self._revoke_access,
            ListAccess: self._list_access,
            c.Join: self._join,
            c.Heartbeat: self._heartbeat,
            c.Leave: self._leave,
            c.ListInstances: self._list_instances,
            c.Offer: self._offer,
            c.Claim: self._claim,
            c.Assign: self._assign,
            c.Finish: self._finish,
            c.Forget: self._forget,
            c.InspectWork: self._inspect_work,
            c.ListWork: self._list_work,
            c.CountWork: self._count_work,
        }

    def store_id(self) -> str:
        """Return what tells this world from all others."""
        return self._world.id

    def open(self) -> None:
        """Nothing to do."""

    def execute(self, request: r.Request[A]) -> A:
        """Answer *request*, then signal whoever is concerned."""
        post: Post = []
        given: float | None = getattr(request, "now", None)
        now = micros(boot_time()) + _EPOCH if given is None else micros(given)
        answer: A = self._answer[type(request)](request, now, post)
        if self._world.stirred:
            post += [(address, r.EVENTS) for address in self._world.awaiting_events()]
        for address, signal in post:
            home, told = r.addressed(address, signal)
            if listener := self._world.listeners.get(home):
                listener(told)
        return answer

    def execute_many(self, requests: Sequence[r.Request[Any]]) -> list[Any]:
        """Answer *requests* one after the other."""
        return one_by_one(self, requests)

    def execute_within(self, connection: Any, request: r.Request[A], awaits: Awaits | None = None) -> A:
        """Refuse: there are no transactions in memory."""
        raise SettingsError(
            "memory:// has no transactions to be part of; use a database, or the token itself"
        )

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self._world.listeners[self._client.instance] = listener

    def be_reachable(self) -> None:
        """Nothing to do."""

    def before_fork(self) -> None:
        """Nothing to do: the child starts with an empty world, whatever state it finds this one in."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do."""

    def after_fork(self, client: r.Client) -> None:
        """Start with an empty world: the parent's locks are in the parent's memory."""
        global _shared_mutex
        _shared_mutex = threading.Lock()  # another thread may have had it, and is not here to give it back
        self._client = client
        self._world = _world_of(self._name)

    def close(self) -> None:
        """Stop listening."""
        self._world.listeners.pop(self._client.instance, None)

    # Access tokens.

    def _grant_access(self, request: GrantAccess, now: int, post: Post) -> AccessToken:
        end = None if request.ttl is None else (now + micros(request.ttl)) / 1e6
        token = AccessToken(request.id, request.name, request.digest, request.rights, now / 1e6, end)
        with self._world.access_mutex:
            return self._world.access.setdefault(request.id, token)

    def _revoke_access(self, request: RevokeAccess, now: int, post: Post) -> AccessToken | None:
        with self._world.access_mutex:
            return self._world.access.pop(request.id, None)

    def _list_access(self, request: ListAccess, now: int, post: Post) -> tuple[AccessToken, ...]:
        with self._world.access_mutex:
            return tuple(
                token for _, token in sorted(self._world.access.items()) if not has_ended(token, now)
            )
