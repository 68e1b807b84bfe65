"""Locks in this process only: the reference store, the shortest honest reading of the protocol.

`memory://` is private to its client; `memory://name` is shared by all clients of the process that say
that name. Keys live in shards, each with its own mutex, held for dictionary work only: different keys
do not wait for one another, and nothing is ever awaited inside.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast.core import cluster as c
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.requests import (
    Acquire,
    Break,
    Client,
    Downgrade,
    Health,
    History,
    Inspect,
    List,
    Probe,
    Release,
    Renew,
    Request,
    Resize,
    Sweep,
    Watch,
    Withdraw,
    addressed,
)
from holdfast.errors import SettingsError
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, one_by_one
from holdfast.stores.memory.access import Admitting
from holdfast.stores.memory.acquiring import Acquiring
from holdfast.stores.memory.assigning import Assigning
from holdfast.stores.memory.changing import Changing
from holdfast.stores.memory.claiming import Claiming
from holdfast.stores.memory.feed import Watching
from holdfast.stores.memory.instances import Membership
from holdfast.stores.memory.looking import Looking
from holdfast.stores.memory.renewing import Renewing
from holdfast.stores.memory.state import Post, World
from holdfast.stores.memory.surveying import Surveying
from holdfast.stores.memory.sweeping import Sweeping

A = TypeVar("A")

# By process as well: a forked child must not join a world whose mutexes may be held by the parent's threads.
_shared: weakref.WeakValueDictionary[tuple[int, str], World] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()


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


class MemoryStore(
    Acquiring,
    Changing,
    Renewing,
    Looking,
    Watching,
    Sweeping,
    Admitting,
    Membership,
    Claiming,
    Assigning,
    Surveying,
):
    """See the module. One object a client; they may share a world."""

    traits = Traits(durable=False, signals=True, blocking=False, repeats=False)

    def __init__(self, options: StoreOptions, name: str = "") -> None:
        self._name = name
        self._world = _world_of(name)
        self._client = options.client
        self._level = options.history
        self._answer: dict[type, Callable[..., Any]] = {
            Acquire: self._acquire,
            Release: self._release,
            Withdraw: self._withdraw,
            Break: self._break,
            Downgrade: self._downgrade,
            Resize: self._resize,
            Renew: self._renew,
            Inspect: self._inspect,
            History: self._history,
            List: self._list,
            Watch: self._watch,
            Sweep: self._sweep,
            Probe: lambda *_: Health(),
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

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, then signal whoever is concerned."""
        post: Post = []
        answer = self._answer[type(request)](request, post)
        for address, signal in post:
            home, told = addressed(address, signal)
            if listener := self._world.listeners.get(home):
                listener(told)
        return cast("A", answer)

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* one after the other."""
        return one_by_one(self, requests)

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
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

    def after_fork(self, client: Client) -> None:
        """Start with an empty world: the parent's locks are in the parent's memory."""
        global _shared_mutex
        _shared_mutex = threading.Lock()  # another thread may have had it, and is not here to give it back
        self._client = client
        self._world = _world_of(self._name)

    def close(self) -> None:
        """Stop listening."""
        self._world.listeners.pop(self._client.instance, None)
