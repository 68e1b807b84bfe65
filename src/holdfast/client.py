"""What both clients share: settings, identity, keeping leases, losing them. Nothing here waits."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, NoReturn, Protocol, TypeVar

from holdfast import errors, exits, identity
from holdfast.clock import boot_time
from holdfast.core import keys, plans
from holdfast.core.data import data, replace
from holdfast.core.keeper import Kept, loss_reason
from holdfast.core.plans import Grant, Plan
from holdfast.core.requests import (
    Acquire,
    Break,
    Fence,
    History,
    Inspect,
    List,
    LockState,
    NotHeld,
    Release,
    Released,
    Request,
    Signal,
    Sweep,
    Withdraw,
)
from holdfast.core.settings import Seconds, Settings, seconds
from holdfast.keeping import CLIENT_CLOSED, KeeperThread
from holdfast.log import log
from holdfast.masking import signals_unblocked
from holdfast.options import OnLost
from holdfast.stores import default_url, open_store, shown
from holdfast.stores.base import StoreOptions

T = TypeVar("T")
MOST = 2**31 - 1  # of anything that is counted


class Mailbox(Protocol):
    """Where the signals for one waiting attempt arrive, from any thread."""

    def put(self, signal: Signal, /) -> None: ...


@data
class Wish:
    """What a caller asked for, validated: the request, and how to treat the lease."""

    request: Acquire
    timeout: float | None
    max_hold: float | None
    renew: bool
    on_lost: OnLost | None
    travels: bool  # an owner= was given, so anybody who has the lease may release it


class BaseClient:
    """The part of `Holdfast` and `AsyncHoldfast` that is the same."""

    def __init__(
        self,
        url: Any,
        *,
        settings: Settings | None,
        ttl: Seconds | None,
        max_hold: Seconds | None,
        history: str | None,
    ) -> None:
        given = {"ttl": ttl, "max_hold": max_hold, "history": history}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if settings is not None and not isinstance(settings, Settings):
            raise errors.SettingsError(f"settings is {settings!r}; it must be a Settings object")
        self.settings = replace(settings or Settings(), **changes)
        source = default_url() if url is None else url
        self.url = source if isinstance(source, str) else shown(source)
        self._client = identity.new_client()
        self._store = open_store(source, StoreOptions(self._client, self.settings.history))
        self._closed = False
        self._start()
        exits.register(self)

    def _start(self) -> None:
        self._attempts = identity.Attempts()
        self._mailboxes: dict[str, Mailbox] = {}
        self._keeping = KeeperThread(self._store, self.settings, self._on_signal)
        self._store.listen(self._on_signal)

    @property
    def instance(self) -> str:
        """The id of this client, which its locks are shown with."""
        return self._client.instance

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed(repr(self))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process; send its url, and make a client there")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._keeping.kept())} leases"
        return f"<{type(self).__name__} {shown(self.url)!r} {state}>"

    # Acquiring.

    def _wish(
        self,
        key: str,
        *,
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
        owner: str | None = None,
        limit: int | None = None,
        max_hold: Seconds | None = None,
        renew: bool = True,
        on_lost: OnLost | None = None,
    ) -> Wish:
        """Check what a caller asks for, and put it into a request."""
        settings = self.settings
        self._check_open()
        most = settings.max_hold if max_hold is None else seconds(max_hold, "max_hold")
        length = settings.ttl if ttl is None else settings.check_ttl(ttl)
        if most is not None and most < length:
            length = settings.check_ttl(most)
        patience = None if timeout is None else seconds(timeout, "timeout")
        if on_lost is not None and not callable(on_lost):
            raise errors.SettingsError(f"on_lost is {on_lost!r}; it must be a function of one LeaseLost")
        if limit is None:
            limit = settings.limit
        else:
            _whole(limit, "limit")
        request = Acquire(
            key=keys.validate(key),
            attempt=self._attempts.new(),
            owner=identity.current_owner() if owner is None else identity.check_name(owner, "owner"),
            ttl=length,
            client=self._client,
            wait=patience != 0,
            limit=limit,
            patience=settings.patience,
            claim=settings.claim,
        )
        return Wish(request, patience, most, renew, on_lost, owner is not None)

    def _wish_within(self, key: str, **options: Any) -> Wish:
        if options.get("timeout"):
            raise errors.SettingsError("nobody waits inside a transaction: leave timeout out, or set it to 0")
        return self._wish(key, **(options | {"timeout": 0}))

    def _acquiring(self, wish: Wish) -> Plan[Grant]:
        return plans.acquire(
            wish.request,
            timeout=wish.timeout,
            settings=self.settings,
            clock=boot_time,
            roll=random.random,
            retire=self._store.traits.repeats,
        )

    def _keep(self, grant: Grant, wish: Wish) -> Kept:
        asked = grant.trusted_until - grant.ttl + self.settings.margin_for(grant.ttl)
        return self._keeping.keep(grant, asked=asked, max_hold=wish.max_hold, renew=wish.renew)

    # Looking and tidying up: the requests, checked.

    def _inspecting(self, key: str) -> Inspect:
        return Inspect(keys.validate(key))

    def _reading_history(self, key: str, limit: int) -> History:
        return History(keys.validate(key), _whole(limit, "limit"))

    def _listing(self, prefix: str, owner: str | None, type: str | None, state: LockState | None) -> List:
        if state not in (None, "held", "expired", "free"):
            raise errors.SettingsError(f"state is {state!r}; it must be 'held', 'expired' or 'free'")
        return List(
            prefix=keys.validate(prefix) if prefix else "",
            owner=owner if owner is None else identity.check_name(owner, "owner"),
            type=type if type is None else keys.validate(type),
            state=state,
        )

    def _breaking(self, key: str, reason: str, by: str | None, token: int | None) -> Break:
        if not isinstance(reason, str) or not reason.strip():
            raise errors.SettingsError("a lock is broken for a reason: say which, it goes into the history")
        if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
            raise errors.SettingsError(f"token is {token!r}; it must be a lease's token")
        return Break(
            key=keys.validate(key),
            by=self._client.host if by is None else identity.check_name(by, "by"),
            reason=identity.check_name(reason, "reason", longest=1000),
            token=token,
        )

    def _sweeping(self, limit: int, after: str) -> Sweep:
        return Sweep(_whole(limit, "limit"), after)

    # Signals, loss, and the end.

    def _on_signal(self, signal: Signal) -> None:
        """Pass a signal on. Called from any thread."""
        if signal.kind == "lost":
            self._keeping.hurry(signal.attempt)
        elif mailbox := self._mailboxes.get(signal.attempt):
            mailbox.put(signal)

    def leave(self) -> None:
        """Close on the way out of the process. Never raises."""
        try:
            self._shut()
        except Exception:  # noqa: BLE001 - the process is ending; there is nobody to raise it to
            log().exception("%r could not be closed", self)

    def _give_everything_back(self) -> None:
        requests: list[Request[Any]] = [
            Release(kept.grant.key, kept.grant.attempt, kept.grant.token, kept.grant.retire)
            for kept in self._keeping.kept()
        ]
        requests += [Withdraw(key, attempt) for key, attempt in self._keeping.tickets()]
        for left in range(len(requests), 0, -1):
            try:
                self._store.execute(requests[-left])
            except errors.HoldfastError as error:
                log().warning("could not give back %d leases and tickets: %s", left, error)
                return  # the others would fare no better, and their leases end by themselves

    def _shut(self) -> None:
        """Stop keeping, give everything back, let go of the store. May block."""
        if self._closed:
            return
        self._closed = True
        exits.unregister(self)
        kept = self._keeping.kept()
        self._keeping.stop()
        for each in kept:  # before they are given back: nobody may trust what is not ours any more
            each.lose(CLIENT_CLOSED)
            self._keeping.tell(each)
        self._give_everything_back()
        self._store.close()
        for attempt, mailbox in list(self._mailboxes.items()):
            mailbox.put(Signal("granted", "", attempt))  # whoever still waits asks again, and is refused

    def before_fork(self) -> None:
        """Leave nothing half done, and nothing open that a child must not inherit."""
        self._store.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._store.after_fork_in_parent()

    def after_fork(self) -> None:
        """Become a client of this process that owns nothing."""
        for kept in self._keeping.abandon():
            kept.lose("forked", detail=f"process {self._client.pid} holds it, not its child")
        self._client = identity.new_client()
        self._store.after_fork(self._client)
        self._start()


class BaseLease:
    """A lease as far as it is the same for threads and tasks."""

    _travel_hint = "pass owner= when acquiring to let a lease travel"

    def __init__(self, kept: Kept, wish: Wish) -> None:
        self._kept = kept
        self._wish = wish
        self._released = False

    @property
    def key(self) -> str:
        """The name of the lock."""
        return self._kept.grant.key

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every lease of this key before."""
        return self._kept.grant.token

    @property
    def owner(self) -> str:
        """Whose lease it is."""
        return self._kept.grant.owner

    @property
    def ttl(self) -> float:
        """How long the lease holds without renewal."""
        return self._kept.grant.ttl

    @property
    def remaining(self) -> float:
        """For how many seconds the lease can be trusted if it is not renewed; 0 when it is over."""
        if self._released or self._loss() is not None:
            return 0.0
        return max(self._kept.trusted_until - boot_time(), 0.0)

    @property
    def held(self) -> bool:
        """Whether the lease can be trusted at this moment."""
        return not self._released and self._loss() is None

    def check(self) -> None:
        """Raise `LeaseLost` if the lease cannot be trusted any more, `NotHeld` if it was released."""
        if self._released:
            raise errors.NotHeld(self.key, "released already")
        if loss := self._loss():
            raise loss.copy()

    def __repr__(self) -> str:
        if self._released:
            state = "released"
        elif loss := self._loss():
            state = f"lost: {loss.reason}"
        else:
            state = f"trusted {self.remaining:.1f} s"
        return f"<{type(self).__name__} {self.key!r} token={self.token}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that holds it")

    def _loss(self) -> errors.LeaseLost | None:
        return self._kept.loss(boot_time())

    def _report_loss(self) -> None:
        """Call *on_lost*, whose errors are logged: they must not stop the keeper."""
        if self._wish.on_lost is not None and self._kept.lost is not None:
            try:
                with signals_unblocked():
                    self._wish.on_lost(self._kept.lost.copy())
            except Exception:  # noqa: BLE001 - it is the user's code
                log().exception("on_lost of %r failed", self.key)

    def _check_ours_to_release(self) -> None:
        kept = self._kept
        if self._released:
            raise errors.NotHeld(self.key, "released already")
        if kept.lost is not None and kept.lost.reason == "forked":
            raise kept.lost.copy()
        if not self._wish.travels and identity.current_owner() != self.owner:
            raise errors.NotHeld(
                self.key,
                f"its owner is {self.owner}, not the current task or thread",
                detail=self._travel_hint,
            )

    # In a transaction of the caller's.

    def _fencing(self) -> Fence:
        self.check()
        return Fence(self.key, self._kept.grant.attempt, self.token)

    def _lose_in_transaction(self, client: BaseClient, said: NotHeld) -> NoReturn:
        """Raise the loss that a transaction has met with."""
        self._kept.lose(loss_reason(said.why), by=said.by, detail=said.reason)
        client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        client._keeping.tell(self._kept)  # noqa: SLF001
        assert self._kept.lost is not None
        raise self._kept.lost.copy()

    def _leaving(self) -> Release:
        """Return the release to be made part of a transaction."""
        self._check_ours_to_release()
        self.check()
        return Release(self.key, self._kept.grant.attempt, self.token, self._kept.grant.retire)

    def _left(self) -> None:
        """Note that it is released once the transaction commits; the keeper renews until it is gone."""
        self._kept.leaving = True

    def _leave_to_transaction(self, client: BaseClient) -> bool:
        """At the end of a block: leave the rest to the transaction that was to release it, if there is one.

        If that is rolled back later, the lease ends with its ttl.
        """
        if not self._kept.leaving or self._released:
            return False
        client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        self._released = True
        return True

    def _releasing(self, client: BaseClient) -> Generator[Any, Any, None]:
        """Release as a plan: check, ask, and raise if the lease was lost meanwhile."""
        kept = self._kept
        self._check_ours_to_release()
        client._keeping.drop(kept.grant.attempt)  # noqa: SLF001
        if kept.lost is not None and kept.lost.reason == CLIENT_CLOSED:
            self._released = True
            raise kept.lost.copy()
        try:
            answer: Released | NotHeld = yield from plans.release(
                kept.grant, settings=client.settings, clock=boot_time, roll=random.random
            )
        except plans.Abandoned:  # it was asked for all the same, and must not be trusted any more
            self._released = True
            raise
        except errors.StoreError as error:
            if loss := self._loss():  # what the store has to say does not matter any more
                raise loss.copy() from error
            raise
        self._released = True
        if isinstance(answer, NotHeld):
            if answer.why == "already" and kept.leaving:  # the transaction has committed
                return
            if answer.why == "already" and kept.lost is None:  # two at once
                raise errors.NotHeld(self.key, "released already")
            kept.lose(loss_reason(answer.why), by=answer.by, detail=answer.reason)
        if kept.lost is not None:
            client._keeping.tell(kept)  # noqa: SLF001
            raise kept.lost.copy()
        kept.tell = None  # it refers to us: without it nothing is left for the garbage collector


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise errors.SettingsError(f"{name} is {value!r}; it must be a whole number from 1 to {MOST}")
    return value


def with_note(error: BaseException, problem: errors.HoldfastError) -> None:
    """Tell of a second problem without hiding the first."""
    error.add_note(f"holdfast: while leaving the block, {problem}")
