"""Elections as far as they are the same for threads and tasks: one leader at a time, and a term is a lease.

The holder of the lock is the leader. So there is nothing to be agreed upon that the store does not know:
terms have tokens, which only grow, and a leader that was paused past its lease is refused by its fence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from holdfast import errors, identity
from holdfast.client import questions
from holdfast.client.engine import Engine
from holdfast.client.leases import BaseLeased, L
from holdfast.client.options import RETRY, Wish
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.plans import Plan
from holdfast.core.requests import Holder, Signal
from holdfast.core.settings import Seconds
from holdfast.log import log

GRACE = 10.0  # seconds that a callback has to return when an election is stopped


class BaseTerm(BaseLeased, Generic[L]):
    """A time for which we are the leader, as far as it is the same for threads and tasks."""

    _lease: L

    @property
    def lease(self) -> L:
        """The lease of the lock that leaders hold."""
        return self._lease

    @property
    def held(self) -> bool:
        """Whether we can be sure at this moment that nobody else leads."""
        return self._lease.held

    def __repr__(self) -> str:
        state = f"sure for {self.remaining:.1f} s" if self.held else "over"
        return f"<{type(self).__name__} {self.key!r} token={self.token}, {state}>"


T = TypeVar("T", bound=BaseTerm[Any])


def is_loss_of(term: BaseTerm[Any], error: BaseException | None) -> bool:
    """Tell whether a body has ended because it was told that its term is over."""
    return isinstance(error, errors.LeaseLost) and (error.key, error.token) == (term.key, term.token)


@contextmanager
def giving_back(term: BaseTerm[Any]) -> Iterator[None]:
    """Log what goes wrong while the lease of a term is released. It is over in any case."""
    try:
        yield
    except errors.LeaseLost as loss:
        log().info("%s", loss)
    except errors.NotHeld:
        pass  # resigned before
    except errors.StoreError as problem:
        log().warning("could not give back the lease of %r, which ends by itself: %s", term.key, problem)


class Candidacy:
    """That we stand for election, behind an `Election`: who we are, what to call, and how it goes."""

    def __init__(
        self,
        engine: Engine,
        key: str,
        on_elected: Callable[[Any], Any] | None,
        on_deposed: Callable[[Any], Any] | None,
        ttl: Seconds | None,
        name: str | None,
    ) -> None:
        for what, function in (("on_elected", on_elected), ("on_deposed", on_deposed)):
            if function is not None and not callable(function):
                raise errors.SettingsError(f"{what} is {function!r}; it must be a function of one term")
        engine.check_open()
        self.key = keys.validate(key)
        shown = identity.program() if name is None else identity.check_name(name, "name", longest=200)
        self.owner = identity.new_owner(shown)  # not the thread: it may hold the same lock for itself
        self.on_elected = on_elected
        self.on_deposed = on_deposed
        self.by_itself = on_elected is not None or on_deposed is not None
        self.stopping = False
        self.campaigning = self.by_itself
        self.failures = 0  # terms that went wrong, in a row
        self._engine = engine
        self._ttl = None if ttl is None else engine.settings.check_ttl(ttl)

    def wish(self, on_lost: Callable[[errors.LeaseLost], None] | None = None) -> Wish:
        """Return what we wait for: the lock, unless the election is stopped meanwhile."""
        wish = self._engine.wish(self.key, ttl=self._ttl, owner=self.owner, limit=1, on_lost=on_lost)
        return replace(wish, unless=lambda: self.stopping)

    def look(self) -> Plan[Holder | None]:
        """Look who leads, as a plan."""
        view = yield from self._engine.asking(questions.inspect(self.key))
        return view.holder if view is not None and view.state == "held" else None

    def check_iterable(self) -> None:
        """Refuse to be iterated over as well."""
        if self.by_itself:
            raise errors.SettingsError(
                f"the election of {self.key!r} has callbacks and campaigns by itself: iterate over one"
                " without any"
            )

    def stop(self) -> None:
        """Take part no more: have the code that waits to be elected look up."""
        self.stopping, self.campaigning = True, False
        self._engine.on_signal(Signal("over", self.key, ""))

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Log what goes wrong: an election goes on until it is stopped, or its client is closed."""
        try:
            yield
        except errors.Closed:
            self.campaigning, self.failures = False, 0
        except Exception as error:  # noqa: BLE001 - see above
            log().warning("the election of %r failed, trying again: %r", self.key, error)
            self.failures += 1

    def went(self, fine: bool) -> None:
        """Note how a term went."""
        self.failures = 0 if fine else self.failures + 1

    def pause(self) -> float:
        """Return how long to wait after what went wrong."""
        return RETRY.delay(self.failures, random.random())

    def failed(self, what: str, term: BaseTerm[Any], error: BaseException) -> bool:
        """Log that a callback has failed, unless it has ended because its term is over."""
        own_loss = is_loss_of(term, error)
        if not own_loss:
            log().error("%s of %r failed", what, self.key, exc_info=error)
        return not own_loss


class BaseElection(Generic[T]):
    """An election that we take part in, as far as it is the same for threads and tasks."""

    _stopped: Any  # an event, of threads or tasks

    def __init__(self, engine: Engine, candidacy: Candidacy) -> None:
        self._engine = engine
        self.key = candidacy.key
        self.owner = candidacy.owner
        self._candidacy = candidacy
        self._term: T | None = None

    @property
    def term(self) -> T | None:
        """Our term, while we are the leader."""
        term = self._term
        return term if term is not None and term.held else None

    @property
    def leading(self) -> bool:
        """Whether we are the leader, and can be sure of it."""
        return self.term is not None

    def __repr__(self) -> str:
        state = "stopped" if self._candidacy.stopping else "waiting"
        if self.leading:
            state = f"leading in {self.term!r}"
        return f"<{type(self).__name__} {self.key!r} as {self.owner!r}, {state}>"

    def _begin_to_stop(self) -> T | None:
        """Have everything that waits look up and end. Return our term, which has to end."""
        self._candidacy.stop()
        self._stopped.set()
        term: Any = self._term
        if term is not None:
            term.lost.set()
        return term  # type: ignore[no-any-return]
