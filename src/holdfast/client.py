"""What both clients share: settings, identity, keeping leases, losing them. Nothing here waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from holdfast import errors, exits, identity, ownership
from holdfast.clock import boot_time
from holdfast.core import keys, plans
from holdfast.core.data import data, replace
from holdfast.core.family import PLAIN, Mode
from holdfast.core.keeper import Kept
from holdfast.core.plans import Grant, Plan, Wait
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Client,
    Done,
    Feed,
    History,
    Inspect,
    List,
    LockState,
    Release,
    Request,
    Resize,
    Signal,
    Sweep,
    Watch,
    Withdraw,
)
from holdfast.core.settings import Seconds, Settings, seconds
from holdfast.keeping import CLIENT_CLOSED, RELEASED_ALL, KeeperThread
from holdfast.log import log
from holdfast.options import OnLost, terms_of, whole
from holdfast.ownership import same_origin
from holdfast.place import Place, asked_at
from holdfast.stores import address_of, default_url, open_store, shown
from holdfast.stores.base import StoreOptions

if TYPE_CHECKING:
    from holdfast.cluster.instances import BaseInstance
    from holdfast.leases import BaseLease

T = TypeVar("T")


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
    place: Place  # where it was asked for
    named: bool  # an owner= was given: what is inside its block is not that owner by itself
    unless: Callable[[], bool] | None = None  # give up waiting, with `Stopped`, once this is so


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
        wait_for_store: Seconds | None,
    ) -> None:
        given = {"ttl": ttl, "max_hold": max_hold, "history": history, "wait_for_store": wait_for_store}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if settings is not None and not isinstance(settings, Settings):
            raise errors.SettingsError(f"settings is {settings!r}; it must be a Settings object")
        self.settings = replace(settings or Settings(), **changes)
        source = default_url() if url is None else address_of(url)
        self.url = source if isinstance(source, str) else shown(source)
        self._client = identity.new_client()
        self._store = open_store(source, StoreOptions(self._client, self.settings.history))
        self._closed = False
        self._start()
        exits.register(self)

    _scheduler: Any = None  # what runs the schedules of this client, once there are any

    def _start(self) -> None:
        vars(self).pop("_scheduler", None)  # that of the process that forked us
        self._attempts = identity.Attempts()
        self._mailboxes: dict[str, tuple[str, Mailbox]] = {}  # attempt → its key, and where it waits
        self._members: dict[str, BaseInstance[Any]] = {}  # the instances that we are, by id
        self._keeping = KeeperThread(self._store, self.settings, self._on_signal)
        self._store.listen(self._on_signal)

    @property
    def instance(self) -> str:
        """The id of this client, which its locks are shown with."""
        return self._client.instance

    def _new_mailbox(self) -> Mailbox:
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Closed(repr(self))

    def _check_same(self, client: Client) -> None:
        """Raise in a forked child that goes on with what its parent had begun, as another client."""
        if self._client is not client:
            raise errors.HoldfastError("the process that forked this one asked for it: ask again here")

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
        mode: Mode = "exclusive",
        permits: int | None = None,
        take: int = 1,
        lock_delay: Seconds = 0.0,
        at_least: Seconds = 0.0,
        operation: bool = False,
        max_attempts: int | None = None,
        seen: int = 0,
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
            whole(limit, "limit")
        request = Acquire(
            key=keys.validate(key),
            attempt=self._attempts.new(),
            owner=ownership.current() if owner is None else identity.check_name(owner, "owner"),
            ttl=length,
            client=self._client,
            wait=patience != 0,
            limit=limit,
            patience=settings.patience,
            claim=settings.claim,
            terms=terms_of(mode, permits, take, lock_delay, at_least, operation, max_attempts),
            seen=seen,
        )
        return Wish(request, patience, most, renew, on_lost, asked_at(), owner is not None)

    def _wish_within(self, key: str, **options: Any) -> Wish:
        if options.get("timeout"):
            raise errors.SettingsError("nobody waits inside a transaction: leave timeout out, or set it to 0")
        wish = self._wish(key, **(options | {"timeout": 0}))
        if wish.request.terms != PLAIN:
            raise errors.SettingsError(
                "inside a transaction a lock is plainly exclusive: leave out mode, permits, lock_delay and"
                " at_least"
            )
        return wish

    def _acquiring(self, wish: Wish) -> Plan[Grant | Done]:
        plan = plans.acquire(
            wish.request,
            timeout=wish.timeout,
            settings=self.settings,
            clock=boot_time,
            roll=random.random,
            retire=self._store.traits.repeats,
        )
        return plan if wish.unless is None else plans.unless(wish.unless, plan)

    def _keep(self, grant: Grant, wish: Wish) -> Kept:
        asked = grant.trusted_until - grant.ttl + self.settings.margin_for(grant.ttl)
        return self._keeping.keep(grant, asked=asked, max_hold=wish.max_hold, renew=wish.renew)

    def _held(self) -> list[Any]:
        """Return the leases that callers have, oldest first. Elections and assignments are not among them."""
        holders = [kept.holder for kept in self._keeping.kept() if kept.holder is not None]
        leases = [lease for holder in holders if (lease := holder()) is not None]
        return [lease for lease in leases if lease._wish.unless is None]  # noqa: SLF001

    def _note_own_lease(self, error: BaseException, wish: Wish) -> None:
        """Add to an error what may surprise: that the same thread or task has the lock that it waited for."""
        asked = wish.request
        for lease in () if wish.named else self._held():
            if lease.key == asked.key and same_origin(lease.owner, asked.owner):
                place = lease._wish.place  # noqa: SLF001
                error.add_note(
                    f"holdfast: this same thread or task took {asked.key!r}, at {place}, and still has it."
                    " Code enters a lock again from inside its block, or with the same owner="
                )
                return

    def _revoke(self, lease: BaseLease) -> None:
        """Tell the code that has a lease that it must not trust it any more."""
        lease._kept.lose(RELEASED_ALL)  # noqa: SLF001
        self._keeping.tell(lease._kept)  # noqa: SLF001

    def _release_later(self, leases: Iterable[BaseLease]) -> None:
        """Have leases released in the background: who wanted to release them was interrupted."""
        for lease in leases:
            self._revoke(lease)
            lease._pursue(self)  # noqa: SLF001
            lease._leave_block()  # noqa: SLF001
            lease._released = True  # noqa: SLF001

    def _pursue(self, request: Withdraw, asked: Acquire | None) -> None:
        """Withdraw later what could not be withdrawn now, unless it has ended by then."""
        if asked is not None:
            self._keeping.pursue(request, asked.lasts)

    def _last_wish(self, plan: Plan[Any], asked: Acquire | None, *, waits: bool = True) -> None:
        """Let a plan undo what it did. It is over already if it raised the error itself. May block.

        *asked*: what it has asked for. Nobody *waits* for what was to be part of a caller's transaction: that
        may have the row locked until the caller has heard of this and ended it, which undoes it as well.
        """
        try:
            step = plan.throw(plans.Abandoned())
            while not isinstance(step, Wait):
                if not waits and isinstance(step, Withdraw):
                    self._pursue(step, asked)
                    step = plan.send(None)
                    continue
                try:
                    result = self._store.execute(step)
                except errors.StoreError as error:
                    if isinstance(step, Withdraw):
                        self._pursue(step, asked)
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except (plans.Abandoned, StopIteration):
            pass
        if self._closed:
            self._store.close()  # asking has opened it again

    # Looking and tidying up: the requests, checked.

    def _inspecting(self, key: str) -> Inspect:
        return Inspect(keys.validate(key))

    def _reading_history(self, key: str, limit: int) -> History:
        return History(keys.validate(key), whole(limit, "limit"))

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

    def _breaking_leases(self, request: Break) -> Plan[list[Broken]]:
        return plans.break_leases(request, settings=self.settings, clock=boot_time, roll=random.random)

    def _resizing(self, key: str, permits: int, by: str | None) -> Resize:
        return Resize(
            key=keys.validate(key),
            permits=whole(permits, "permits"),
            by=self._client.host if by is None else identity.check_name(by, "by"),
        )

    def _watching(self, pattern: str, after: int | None) -> Watch:
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise errors.SettingsError(f"after is {after!r}; it must be the id of an event, or 0 for all")
        if not isinstance(pattern, str) or not pattern.endswith("*"):
            return Watch(keys.validate(pattern), exact=True, after=after)
        prefix = pattern.removesuffix("*")
        return Watch(keys.validate(prefix) if prefix else "", after=after)

    def _awaiting_events(self, request: Watch, until: float | None) -> Plan[Feed]:
        return plans.next_events(
            request, until=until, settings=self.settings, clock=boot_time, roll=random.random
        )

    def _sweeping(self, limit: int, after: str) -> Sweep:
        return Sweep(whole(limit, "limit"), after)

    # Signals, loss, and the end.

    def _on_signal(self, signal: Signal) -> None:
        """Pass a signal on. Called from any thread."""
        if signal.kind == "lost":
            self._keeping.hurry(signal.attempt)
        elif signal.kind == "over":
            for key, mailbox in list(self._mailboxes.values()):
                if key == signal.key:
                    mailbox.put(signal)
        elif signal.kind == "work":
            if member := self._members.get(signal.attempt):
                member._on_signal(signal)  # noqa: SLF001
        elif found := self._mailboxes.get(signal.attempt):
            found[1].put(signal)

    def leave(self) -> None:
        """Close on the way out of the process. Never raises."""
        try:
            self._shut()
        except Exception:  # noqa: BLE001 - the process is ending; there is nobody to raise it to
            log().exception("%r could not be closed", self)

    def _give_everything_back(self, leases: list[Kept], members: list[BaseInstance[Any]]) -> None:
        """Give back what can be: one may be locked, and the others not. Not for ever: the store may be away.

        What a transaction was to release comes last: if that is still open, it has the row. What is left ends
        by itself.
        """
        # What was assigned is returned when the instance leaves.
        releases = [
            (kept.leaving, Release(kept.grant.key, kept.grant.attempt, kept.grant.token, kept.grant.retire))
            for kept in leases
            if kept.member is None
        ]
        requests: list[Request[Any]] = [member._last_request() for member in members]  # noqa: SLF001
        requests += [release for leaving, release in releases if not leaving]
        requests += [Withdraw(key, attempt) for key, attempt in self._keeping.tickets()]
        requests += self._keeping.pursued()
        requests += [release for leaving, release in releases if leaving]
        until = boot_time() + self.settings.release_timeout
        done = 0
        trouble: errors.HoldfastError | None = None
        for request in requests:
            if trouble is not None and boot_time() >= until:
                break
            try:
                self._store.execute(request)
                done += 1
            except errors.HoldfastError as error:
                trouble = error
        if trouble is not None:
            log().warning("could not give back %d leases and tickets: %s", len(requests) - done, trouble)

    def _shut(self) -> None:
        """Stop keeping, give everything back, let go of the store. May block."""
        if self._closed:
            return
        self._closed = True
        exits.unregister(self)
        if self._scheduler is not None:
            self._scheduler.stop()
        members = list(self._members.values())
        for member in members:
            member._stop_taking()  # noqa: SLF001 - else something could come that is in nobody's list
        kept = self._keeping.kept()
        self._keeping.stop()
        for member in members:
            member._has_left()  # noqa: SLF001
        for each in kept:  # before they are given back: nobody may trust what is not ours any more
            each.lose(CLIENT_CLOSED)
            self._keeping.tell(each)
        # What was kept then: whoever was told lets go of it by now, and leaves it to us to release.
        self._give_everything_back(kept, members)
        self._store.close()
        for attempt, (_, mailbox) in list(self._mailboxes.items()):
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
        for member in self._members.values():
            member._forked()  # noqa: SLF001
        self._client = identity.new_client()
        self._store.after_fork(self._client)
        self._start()
