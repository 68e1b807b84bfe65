"""Elections for threads: one leader at a time, and a term is a lease. `aio_electing` has those for tasks.

Whoever holds the lock is the leader. So there is nothing to be agreed upon that the store does not know:
terms have tokens, which only grow, and a leader that was paused past its lease is refused by its fence.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import errors, identity
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.plans import Stopped
from holdfast.core.requests import Holder, Signal
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.masking import block_signals, signals_unblocked
from holdfast.options import RETRY
from holdfast.sync_leases import Lease, Lost

if TYPE_CHECKING:
    from holdfast.client import BaseClient, Wish
    from holdfast.leases import BaseLease
    from holdfast.sync import Holdfast

GRACE = 10.0  # seconds that a callback has to return when an election is stopped


class BaseTerm:
    """A time for which we are the leader, as far as it is the same for threads and tasks."""

    _lease: BaseLease

    @property
    def key(self) -> str:
        """What we were elected for."""
        return self._lease.key

    @property
    def token(self) -> int:
        """The number of the term: larger than that of every term before. It is a fencing token."""
        return self._lease.token

    @property
    def held(self) -> bool:
        """Whether we can be sure at this moment that nobody else leads."""
        return self._lease.held

    @property
    def remaining(self) -> float:
        """For how many seconds we can be sure if nothing is renewed; 0 when it is over."""
        return self._lease.remaining

    def check(self) -> None:
        """Raise `LeaseLost` if somebody else may lead by now, `NotHeld` if we have resigned."""
        self._lease.check()

    def __repr__(self) -> str:
        state = f"sure for {self.remaining:.1f} s" if self.held else "over"
        return f"<{type(self).__name__} {self.key!r} token={self.token}, {state}>"

    def _is_own_loss(self, error: BaseException | None) -> bool:
        """Tell whether a body has ended because it was told that its term is over."""
        return isinstance(error, errors.LeaseLost) and (error.key, error.token) == (self.key, self.token)


class BaseElection:
    """An election that we take part in, as far as it is the same for threads and tasks."""

    def __init__(
        self,
        client: BaseClient,
        key: str,
        *,
        on_elected: Callable[..., Any] | None,
        on_deposed: Callable[..., Any] | None,
        ttl: Seconds | None,
        name: str | None,
    ) -> None:
        for what, function in (("on_elected", on_elected), ("on_deposed", on_deposed)):
            if function is not None and not callable(function):
                raise errors.SettingsError(f"{what} is {function!r}; it must be a function of one term")
        client._check_open()  # noqa: SLF001
        self.key = keys.validate(key)
        shown = identity.program() if name is None else identity.check_name(name, "name", longest=200)
        self.owner = identity.new_owner(shown)  # not the thread: it may hold the same lock for itself
        self._ttl = None if ttl is None else client.settings.check_ttl(ttl)
        self._client = client
        self._on_elected = on_elected
        self._on_deposed = on_deposed
        self._by_itself = on_elected is not None or on_deposed is not None
        self._stopping = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} as {self.owner!r}, {self._state()}>"

    def _state(self) -> str:
        return "stopped" if self._stopping else "waiting"

    def _candidacy(self, on_lost: Callable[[errors.LeaseLost], None] | None) -> Wish:
        wish = self._client._wish(  # noqa: SLF001
            self.key, ttl=self._ttl, owner=self.owner, limit=1, on_lost=on_lost
        )
        return replace(wish, unless=lambda: self._stopping)

    def _wake(self) -> None:
        """Have whoever waits to be elected look up."""
        self._client._on_signal(Signal("over", self.key, ""))  # noqa: SLF001

    def _check_iterable(self) -> None:
        if self._by_itself:
            raise errors.SettingsError(
                f"the election of {self.key!r} has callbacks and campaigns by itself: iterate over one"
                " without any"
            )

    def _pause(self, failures: int) -> float:
        return RETRY.delay(failures, random.random())


class Term(BaseTerm):
    """A time for which we are the leader. As a context manager it ends with the block.

    Being deposed is no error there: the block is left as if it had ended, and the election goes on.
    """

    def __init__(self, election: Election, lease: Lease) -> None:
        self._election = election
        self._lease: Lease = lease
        self._deposed = threading.Lock()  # taken by whoever tells that it is over
        self._told = threading.Event()

    @property
    def lease(self) -> Lease:
        """The lease of the lock that leaders hold."""
        return self._lease

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the term is over, or has to end because the election is stopped."""
        return self._lease.lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe from later leaders: see `Lease.fence`."""
        self._lease.fence(connection)

    def resign(self) -> None:
        """End the term: the next who waits is elected at once. Harmless if it is over."""
        self.lost.set()
        self._election._depose(self)  # noqa: SLF001
        try:
            self._lease.release()
        except errors.LeaseLost as loss:
            log().info("%s", loss)
        except errors.NotHeld:
            pass  # resigned before
        except errors.StoreError as problem:
            log().warning("could not give back the lease of %r, which ends by itself: %s", self.key, problem)

    def __enter__(self) -> Term:
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self.resign()
        return self._is_own_loss(error)


class Election(BaseElection):
    """What `Holdfast.elect` returns: iterate over it, or give it callbacks."""

    _client: Holdfast

    def __init__(
        self,
        client: Holdfast,
        key: str,
        *,
        on_elected: Callable[[Term], object] | None = None,
        on_deposed: Callable[[Term], object] | None = None,
        ttl: Seconds | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(client, key, on_elected=on_elected, on_deposed=on_deposed, ttl=ttl, name=name)
        self._term: Term | None = None
        self._calling: int | None = None  # the thread that is in on_deposed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if self._by_itself:
            self._thread = threading.Thread(target=self._campaign, name="holdfast-election", daemon=True)
            self._thread.start()

    @property
    def term(self) -> Term | None:
        """Our term, while we are the leader."""
        term = self._term
        return term if term is not None and term.held else None

    @property
    def leading(self) -> bool:
        """Whether we are the leader, and can be sure of it."""
        return self.term is not None

    def leader(self) -> Holder | None:
        """Look who leads, us or anybody else; None if nobody does."""
        view = self._client.inspect(self.key)
        return view.holder if view is not None and view.state == "held" else None

    def stop(self, timeout: Seconds = GRACE) -> None:
        """Take part no more. If we lead, the term ends: *on_deposed* is called, and the next is elected.

        *on_elected* may still run: it finds its term lost, and has *timeout* to return. A loop over this
        election ends when its body does.
        """
        patience = seconds(timeout, "timeout")
        self._stopping = True
        self._stopped.set()
        self._wake()
        term = self._term
        if term is not None:
            term.lost.set()
        thread = self._thread
        me = threading.current_thread()
        if thread is None or thread is me or self._calling == me.ident:
            return
        if term is not None:
            self._depose(term)
        thread.join(patience)
        if thread.is_alive() and term is not None:
            log().warning("on_elected of %r has not returned in %g s, and leads no more", self.key, patience)
            term.resign()

    def __iter__(self) -> Iterator[Term]:
        self._check_iterable()
        while (term := self._win()) is not None:
            try:
                yield term
            finally:
                self._term = None
                term.resign()

    def __enter__(self) -> Election:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _state(self) -> str:
        return f"leading in {self.term!r}" if self.leading else super()._state()

    def _win(self) -> Term | None:
        """Wait to be elected; None once it is stopped."""
        try:
            lease = self._client._acquire(self._candidacy(self._on_lost))  # noqa: SLF001
        except Stopped:
            return None
        self._term = term = Term(self, lease)
        if self._stopping:  # while we were elected
            self._term = None
            term.resign()
            return None
        return term

    # By itself.

    def _campaign(self) -> None:
        block_signals()
        failures = 0
        while not self._stopping:
            try:
                term = self._win()
                if term is None:
                    return
                failures = 0 if self._serve(term) else failures + 1
            except errors.Closed:
                return
            except Exception as error:  # noqa: BLE001 - an election goes on until it is stopped
                log().warning("the election of %r failed, trying again: %r", self.key, error)
                failures += 1
            if failures:
                self._stopped.wait(self._pause(failures))

    def _serve(self, term: Term) -> bool:
        """Be the leader for a term. Tell whether nothing went wrong."""
        fine = True
        try:
            if self._on_elected is not None:
                fine = self._call("on_elected", self._on_elected, term)
            if fine:
                term.lost.wait()
        finally:
            self._term = None
            term.resign()
        return fine

    def _on_lost(self, loss: errors.LeaseLost) -> None:
        """Tell of a loss while on_elected may still run. The keeper calls this, and must not wait for it."""
        term = self._term
        if term is None or self._on_deposed is None:
            return
        try:
            threading.Thread(target=self._depose, args=(term,), name="holdfast-deposed", daemon=True).start()
        except RuntimeError:  # the interpreter is ending
            self._depose(term)

    def _depose(self, term: Term) -> None:
        """Tell that a term is over: once, and before the next one can begin."""
        if self._on_deposed is None or self._calling == threading.get_ident():
            return
        if term._deposed.acquire(blocking=False):  # noqa: SLF001 - and never given back
            self._calling = threading.get_ident()
            try:
                self._call("on_deposed", self._on_deposed, term)
            finally:
                self._calling = None
                term._told.set()  # noqa: SLF001
        else:
            term._told.wait()  # noqa: SLF001

    def _call(self, what: str, function: Callable[[Term], object], term: Term) -> bool:
        try:
            with signals_unblocked():
                function(term)
        except BaseException as error:  # noqa: BLE001 - a user's sys.exit() ends a thread, but not this one
            if not term._is_own_loss(error):  # noqa: SLF001
                log().error("%s of %r failed", what, self.key, exc_info=error)
                return False
        return True
