"""The engine of a client: its store, its keeper, its mailboxes, and running plans on them.

Everything a client gives out (leases, operations, instances, elections, schedules) is given the engine and
talks to nothing else. This part is the same for threads and tasks, and does not wait: `client.sync.engine`
and `client.aio.engine` add that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from holdfast import errors, identity
from holdfast.client import exits, ownership
from holdfast.client.keeper_thread import CLIENT_CLOSED, KeeperThread
from holdfast.client.options import OnLost, Wish, terms_of, whole
from holdfast.client.place import asked_at
from holdfast.clock import boot_time
from holdfast.core import keys, plans
from holdfast.core.data import replace
from holdfast.core.driver import Drive
from holdfast.core.family import PLAIN, Mode
from holdfast.core.keeper import Kept
from holdfast.core.plans import Grant, Handed, Plan, Wait
from holdfast.core.requests import Acquire, Client, Done, Queued, Release, Request, Signal, Withdraw
from holdfast.core.settings import Seconds, Settings, seconds
from holdfast.log import log
from holdfast.stores import address_of, default_url, open_store, shown
from holdfast.stores.base import StoreOptions

T = TypeVar("T")
A = TypeVar("A")


WATCHED = "\n"  # in the place of a key: whoever has this mailbox watches


class Mailbox(Protocol):
    """Where the signals for one waiting attempt arrive, from any thread."""

    def put(self, signal: Signal | Handed, /) -> None: ...


class Member(Protocol):
    """An instance that this client is, as far as the engine is concerned: see `Workload`."""

    def on_signal(self, signal: Signal) -> None: ...
    def last_request(self) -> Request[Any]: ...
    def stop_taking(self) -> None: ...
    def has_left(self) -> None: ...
    def forked(self) -> None: ...


class Running(Drive[T]):
    """A plan that the engine runs. *within*: a transaction of the caller's to acquire in."""

    asked: Acquire | None = None  # what it has asked for
    asked_at: float = 0.0  # and just before when
    waiting: str | None = None  # the attempt that can be signalled

    def __init__(self, plan: Plan[T], client: Client, within: Any) -> None:
        self.plan = plan
        self.client = client
        self.within = within


class Engine:
    """See the module."""

    scheduler: Any = (
        None  # what runs the schedules of this client, once there are any: see `Routine.scheduler`
    )

    def __init__(self, kind: str, url: Any, settings: Settings | None, changes: dict[str, Any]) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise errors.SettingsError(f"settings is {settings!r}; it must be a Settings object")
        self._kind = kind  # what its client is called
        self.settings = replace(settings or Settings(), **changes)
        source = default_url() if url is None else address_of(url)
        self.url = source if isinstance(source, str) else shown(source)
        self.client = identity.new_client()
        self.store = open_store(source, StoreOptions(self.client, self.settings.history))
        self.closed = False
        self.start()
        exits.register(self)

    def start(self) -> None:
        """Begin, with nothing to keep: when it is made, and in a forked child."""
        vars(self).pop("scheduler", None)  # that of the process that forked us
        self.attempts = identity.Attempts()
        self.mailboxes: dict[str, tuple[str, Mailbox]] = {}  # attempt → its key, and where it waits
        self.members: dict[str, Member] = {}  # the instances that we are, by id
        self.keeper = KeeperThread(self.store, self.settings, self.on_signal)
        self.store.listen(self.on_signal)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.keeper.kept())} leases"
        return f"<{self._kind} {shown(self.url)!r} {state}>"

    def new_mailbox(self) -> Mailbox:
        """Return where one that waits is signalled."""
        raise NotImplementedError

    def check_open(self) -> None:
        """Raise `Closed` if the client was closed."""
        if self.closed:
            raise errors.Closed(repr(self))

    # Wishes.

    def wish(
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
        if self.closed:
            self.check_open()
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
            attempt=self.attempts.new(),
            owner=ownership.current() if owner is None else identity.check_name(owner, "owner"),
            ttl=length,
            client=self.client,
            wait=patience != 0,
            limit=limit,
            patience=settings.patience,
            claim=settings.claim,
            terms=terms_of(mode, permits, take, lock_delay, at_least, operation, max_attempts),
            seen=seen,
        )
        return Wish(request, patience, most, renew, on_lost, asked_at(), owner is not None)

    def wish_within(self, key: str, **options: Any) -> Wish:
        """The same, for a lock that is taken in a transaction of the caller's."""
        if options.get("timeout"):
            raise errors.SettingsError("nobody waits inside a transaction: leave timeout out, or set it to 0")
        wish = self.wish(key, **(options | {"timeout": 0}))
        if wish.request.terms != PLAIN:
            raise errors.SettingsError(
                "inside a transaction a lock is plainly exclusive: leave out mode, permits, lock_delay and"
                " at_least"
            )
        return wish

    # Plans.

    def acquiring(self, wish: Wish) -> Plan[Grant | Done]:
        """Return the plan to take a lock."""
        plan = plans.acquire(
            wish.request,
            timeout=wish.timeout,
            settings=self.settings,
            clock=boot_time,
            roll=random.random,
            retire=self.store.traits.repeats,
            enters=wish.renew and self.settings.enters,
        )
        return plan if wish.unless is None else plans.unless(wish.unless, plan)

    def asking(self, request: Request[A], *, unknown_too: bool = False) -> Plan[A]:
        """Return the plan to ask for something that may be asked twice: see `plans.ask`."""
        return plans.ask(request, **self.how(), unknown_too=unknown_too)

    def how(self) -> dict[str, Any]:
        """Return what every plan goes by."""
        return {"settings": self.settings, "clock": boot_time, "roll": random.random}

    def prepare(self, running: Running[Any], step: Acquire) -> None:
        """Before a lock is asked for: have a mailbox for whoever is to wait for it."""
        running.asked = step
        if step.wait and step.attempt != running.waiting:
            if running.waiting is not None:
                self.stop_waiting(running.waiting)
            running.waiting = step.attempt
            self.mailboxes[step.attempt] = step.key, self.new_mailbox()
        running.asked_at = boot_time()

    def answered(self, running: Running[Any], answer: Any) -> bool:
        """Tell a plan what the store has answered, or what it has waited for."""
        if type(answer) is Queued:
            self.keeper.wait(running.step.key, running.step.attempt, running.asked_at, answer.at)
        if self.client is not running.client:
            self._raise_forked()
        return running.tell(answer)

    def failed(self, running: Running[Any], error: errors.StoreError) -> bool:
        """Tell a plan that the store has failed. What could not be withdrawn is pursued."""
        if self.client is not running.client:
            self._raise_forked()
        if isinstance(running.step, Withdraw):
            self.pursue(running, running.step)
        try:
            return running.fail(error)
        finally:
            del error  # as in `Drive.fail`

    def _raise_forked(self) -> None:
        """Raise in a forked child that goes on with what its parent had begun, as another client."""
        raise errors.HoldfastError("the process that forked this one asked for it: ask again here")

    def undo(self, running: Running[Any]) -> None:
        """Let a plan undo what it did. It is over already if it raised the error itself. May block.

        Nobody waits for what was to be part of a caller's transaction: that may have the row locked until the
        caller has heard of this and ended it, which undoes it as well.
        """
        running.undo(lambda step: self._undo_step(running, step), waits=(Wait,))
        self.close_again()

    def _undo_step(self, running: Running[Any], step: Any) -> Any:
        if running.within is not None and isinstance(step, Withdraw):
            return self.pursue(running, step)
        try:
            return self.store.execute(step)
        except errors.StoreError:
            if isinstance(step, Withdraw):
                self.pursue(running, step)
            raise

    def pursue(self, running: Running[Any], request: Withdraw) -> Any:
        """Withdraw later what could not be withdrawn now, unless it has ended by then."""
        if running.asked is not None:
            self.keeper.pursue(request, running.asked.lasts)

    def stop_waiting(self, attempt: str | None) -> None:
        """Let go of a mailbox and a ticket."""
        if attempt is not None:
            self.mailboxes.pop(attempt, None)
            self.keeper.leave(attempt)

    @exits.busy
    def run_quietly(self, plan: Plan[None]) -> None:
        """Do what a plan wants that does not wait, and block for it: the last thing after an interrupt."""
        drive = Drive(plan)
        drive.finish(self.store.execute, drive.tell(None), waits=(Wait,))
        self.close_again()

    def close_again(self) -> None:
        """After a last request of a client that was closed: asking has opened the store again."""
        if self.closed:
            self.store.close()

    # Leases.

    def keep(self, grant: Grant, wish: Wish) -> Kept:
        """Have the keeper renew a lease from now on, as it was wished."""
        return self.keeper.keep(grant, max_hold=wish.max_hold, renew=wish.renew)

    def leases(self) -> list[Any]:
        """Return the leases that callers have, oldest first. Elections and assignments are not among them."""
        holders = [kept.holder for kept in self.keeper.kept()]
        leases = [holder() for holder in holders if holder is not None and holder.listed]
        return [lease for lease in leases if lease is not None]

    def note_own_lease(self, error: BaseException, wish: Wish) -> None:
        """Add to an error what may surprise: that the same thread or task has the lock that it waited for."""
        asked = wish.request
        for kept in () if wish.named else self.keeper.kept():
            grant, holder = kept.grant, kept.holder
            if holder is None or grant.key != asked.key or holder() is None:
                continue
            if ownership.same_origin(grant.owner, asked.owner) and holder.listed:
                error.add_note(
                    f"holdfast: this same thread or task took {asked.key!r}, at {holder.place}, and"
                    " still has it. Code enters a lock again from inside its block, or with the same owner="
                )
                return

    # Signals, and the end.

    def on_signal(self, signal: Signal) -> None:
        """Pass a signal on. Called from any thread."""
        if signal.kind == "lost":
            self.keeper.hurry(signal.attempt)
        elif signal.kind in ("over", "events"):
            concerned = signal.key if signal.kind == "over" else WATCHED
            for key, mailbox in list(self.mailboxes.values()):
                if key == concerned:
                    mailbox.put(signal)
        elif signal.kind == "work":
            if member := self.members.get(signal.attempt):
                member.on_signal(signal)
        elif found := self.mailboxes.get(signal.attempt):
            found[1].put(self.keeper.heard(signal) if signal.token else signal)

    def shut(self) -> None:
        """Stop keeping, give everything back, let go of the store. May block."""
        if self.closed:
            return
        self.closed = True
        exits.unregister(self)
        if self.scheduler is not None:
            self.scheduler.stop()
        members = list(self.members.values())
        for member in members:
            member.stop_taking()  # otherwise something could come that is in nobody's list
        kept = self.keeper.kept()
        self.keeper.stop()
        for member in members:
            member.has_left()
        for each in kept:  # before they are given back: nobody may trust what is not ours any more
            each.lose(CLIENT_CLOSED)
            self.keeper.tell(each)
        # What was kept then: code that was told lets go of it by now, and leaves it to us to release.
        self._give_everything_back(kept, members)
        self.store.close()
        for attempt, (_, mailbox) in list(self.mailboxes.items()):
            mailbox.put(Signal("granted", "", attempt))  # one that still waits asks again, and is refused

    def _give_everything_back(self, leases: list[Kept], members: Iterable[Member]) -> None:
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
        requests: list[Request[Any]] = [member.last_request() for member in members]
        requests += [release for leaving, release in releases if not leaving]
        requests += [Withdraw(key, attempt) for key, attempt in self.keeper.tickets()]
        requests += self.keeper.pursued()
        requests += [release for leaving, release in releases if leaving]
        until = boot_time() + self.settings.release_timeout
        done = 0
        trouble: errors.HoldfastError | None = None
        for request in requests:
            if trouble is not None and boot_time() >= until:
                break
            try:
                self.store.execute(request)
                done += 1
            except errors.HoldfastError as error:
                trouble = error
        if trouble is not None:
            log().warning("could not give back %d leases and tickets: %s", len(requests) - done, trouble)

    # The end of the process, and forks: see `exits`.

    def in_books(self) -> bool:
        """Tell whether some thread is changing what the keeper keeps, at this moment."""
        return self.keeper.in_books()

    def leave(self) -> None:
        """Close on the way out of the process. Never raises."""
        try:
            self.shut()
        except Exception:  # noqa: BLE001 - the process is ending; there is nobody to raise it to
            log().exception("%r could not be closed", self)

    def before_fork(self) -> None:
        """Leave nothing half done, and nothing open that a child must not inherit."""
        self.store.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self.store.after_fork_in_parent()

    def after_fork(self) -> None:
        """Become the engine of a forked child, which owns nothing."""
        for kept in self.keeper.abandon():
            kept.lose("forked", detail=f"process {self.client.pid} holds it, not its child")
        for member in self.members.values():
            member.forked()
        self.client = identity.new_client()
        self.store.after_fork(self.client)
        self.start()
