"""Find locks that are taken in opposite orders, even if no test was unlucky enough to deadlock.

    with LockOrder():
        ...  # whatever takes locks, in any number of threads and tasks

Whoever waits for B while he has A has shown the order A → B. Orders that make a circle can deadlock some day,
and leaving the block raises `LockOrderViolation`, which names the places in the code.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from itertools import pairwise
from types import TracebackType
from typing import Any

from holdfast.client.engine import Engine
from holdfast.client.options import Wish
from holdfast.core.data import data
from holdfast.core.keeper import Keeper, Kept


@data
class Taken:
    """A key, and the place in the code where it was taken."""

    key: str
    place: str

    def __str__(self) -> str:
        return f"{self.key!r} ({self.place})"


@data
class Order:
    """An owner that had one key and asked for another."""

    owner: str
    had: Taken
    asked: Taken

    def __str__(self) -> str:
        return f"{self.owner} had {self.had} and asked for {self.asked}"


class LockOrderViolation(AssertionError):
    """Locks are taken in orders that make a circle.

    *names* are the keys, or classes of keys, in it; *circle* has an example for each step.
    """

    def __init__(self, names: tuple[str, ...], circle: tuple[Order, ...]) -> None:
        self.names = names
        self.circle = circle
        around = " → ".join(map(repr, (*names, names[0])))
        super().__init__(
            "\n".join(
                (
                    f"locks are taken in orders that can deadlock: {around}",
                    *(f"  {order}" for order in circle),
                    "take them in one order everywhere, or together with hold_all",
                )
            )
        )


class LockOrder:
    """Watches in which order locks are taken, by all clients of this process, while its block runs.

    What an owner has is what it took in the block and has not given back or lost. Entering a lock again is
    no order, nor is a single try (``try_acquire``, ``timeout=0``): it waits for nobody. A wait that failed
    is one.

    - *group*: a function from a key to the class of keys it belongs to, if the order is a matter of classes:
      ``lambda key: key.split(":")[0]``. Within one class the keys themselves must not make a circle.

    Some of what is reported cannot happen: orders that only readers have (``mode="shared"``), that one
    thread has by itself, or that are taken under a third lock. They count all the same, for the next
    change may make them dangerous. Keys of different stores are the same if their names are: in tests every
    client may have a store of its own.
    """

    def __init__(self, *, group: Callable[[str], str] | None = None) -> None:
        self._group = group or _itself
        self._mutex = threading.Lock()
        self._has: dict[str, dict[str, tuple[Kept, Taken]]] = {}  # owner → attempt → lease
        self._owners: dict[str, str] = {}  # attempt → owner
        self._orders: dict[_Node, dict[_Node, Order]] = {}

    def __repr__(self) -> str:
        return f"<LockOrder {len(self.orders)} orders>"

    @property
    def orders(self) -> tuple[Order, ...]:
        """All orders that were seen: the first example of each."""
        with self._mutex:
            return tuple(order for after in self._orders.values() for order in after.values())

    def check(self) -> None:
        """Raise `LockOrderViolation` for the shortest circle, if there is one."""
        with self._mutex:
            circles = [circle for node in self._orders if (circle := self._circle_from(node))]
            if not circles:
                return
            nodes = min(circles, key=len)
            steps = tuple(self._orders[a][b] for a, b in pairwise([*nodes, nodes[0]]))
        raise LockOrderViolation(tuple(node.name for node in nodes), steps)

    def __enter__(self) -> LockOrder:
        _watch(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _stop_watching(self)
        if error is None:
            self.check()

    # What the clients do. Called from any thread.

    def _asks(self, wish: Wish) -> None:
        request = wish.request
        if not request.wait:
            return
        asked = Taken(request.key, str(wish.place))
        owner = _who(wish)
        with self._mutex:
            before = [taken for kept, taken in self._has.get(owner, {}).values() if _is_held(kept)]
            if any(taken.key == asked.key for taken in before):
                return
            for had in before:
                first, then = self._group(had.key), self._group(asked.key)
                same = first == then
                source = _Node(same, had.key if same else first)
                target = _Node(same, asked.key if same else then)
                self._orders.setdefault(source, {}).setdefault(target, Order(owner, had, asked))

    def _takes(self, kept: Kept, wish: Wish) -> None:
        grant = kept.grant
        taken = Taken(grant.key, str(wish.place))
        owner = _who(wish)
        with self._mutex:
            self._owners[grant.attempt] = owner
            self._has.setdefault(owner, {})[grant.attempt] = (kept, taken)

    def _drops(self, attempt: str) -> None:
        with self._mutex:
            owner = self._owners.pop(attempt, None)
            if owner is not None:
                del self._has[owner][attempt]
                if not self._has[owner]:
                    del self._has[owner]

    def _circle_from(self, start: _Node) -> list[_Node] | None:
        """Return the shortest way that leads back to *start*, if there is one."""
        ways = [[start]]
        seen = set()
        for way in ways:
            for node in self._orders.get(way[-1], ()):
                if node == start:
                    return way
                if node not in seen:
                    seen.add(node)
                    ways.append([*way, node])
        return None


@data
class _Node:
    """A class of keys, or, among those of one class, a key."""

    is_key: bool
    name: str


def _who(wish: Wish) -> str:
    """Return who waits: an owner that was given, otherwise the thread or task, also outside of blocks."""
    owner = wish.request.owner
    made_up = None if wish.named else _MADE_UP.fullmatch(owner)
    return owner if made_up is None else made_up[1]


def _itself(key: str) -> str:
    return key


def _is_held(kept: Kept) -> bool:
    # A client that is closed drops nothing. What a transaction is to release may be gone at any moment.
    return kept.lost is None and not kept.leaving


# Watching: the three places that every lease comes past, wrapped as long as somebody watches.

_watching: tuple[LockOrder, ...] = ()
_MADE_UP = re.compile(r"(.*-[0-9a-f]{12})\.[0-9]+")  # what an owner is called that nobody gave a name

_watching_mutex = threading.Lock()
_unwatched: list[tuple[type, str, Any]] = []


def _asked(order: LockOrder, _plan: Any, wish: Wish, *_: Any) -> None:
    order._asks(wish)  # noqa: SLF001


def _kept(order: LockOrder, kept: Kept, _grant: Any, wish: Wish) -> None:
    order._takes(kept, wish)  # noqa: SLF001


def _dropped(order: LockOrder, _none: None, attempt: str, *_: Any) -> None:
    order._drops(attempt)  # noqa: SLF001


def _watch(order: LockOrder) -> None:
    global _watching
    with _watching_mutex:
        if not _watching:
            _wrap(Engine, "acquiring", _asked)
            _wrap(Engine, "keep", _kept)
            _wrap(Keeper, "drop", _dropped)
        _watching = (*_watching, order)


def _stop_watching(order: LockOrder) -> None:
    global _watching
    with _watching_mutex:
        _watching = tuple(each for each in _watching if each is not order)
        while not _watching and _unwatched:
            cls, name, function = _unwatched.pop()
            setattr(cls, name, function)


def _wrap(cls: type, name: str, tell: Callable[..., None]) -> None:
    function = getattr(cls, name)

    @functools.wraps(function)
    def watched(self: Any, *args: Any, **options: Any) -> Any:
        result = function(self, *args, **options)
        for order in _watching:
            tell(order, result, *args)
        return result

    _unwatched.append((cls, name, function))
    setattr(cls, name, watched)
