"""The engine of `Holdfast`: it runs plans in the thread that calls, and blocks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from holdfast import errors
from holdfast.client import exits
from holdfast.client.engine import Engine, Running
from holdfast.client.holdings import Holding
from holdfast.client.options import Wish
from holdfast.clock import boot_time
from holdfast.core.data import replace
from holdfast.core.plans import Handed, Plan, Wait
from holdfast.core.requests import Acquire, Done, Granted, Request, Signal, Withdraw
from holdfast.core.settings import Settings
from holdfast.stores.readiness import when_ready

A = TypeVar("A")
L = TypeVar("L")
T = TypeVar("T")


class ThreadHolding(Holding):
    """What a caller holds, in a program with threads."""

    __slots__ = ()
    engine: ThreadEngine

    def forget(self) -> None:
        """Give it back without a word, when an interrupt has hit while it was taken or released."""
        grant = self.kept.grant
        self.engine.forget(grant.key, grant.attempt, grant.ttl, waits=not self.kept.leaving, held=True)
        self.leave_block()
        self.released = True


class ThreadEngine(Engine):
    """See the module."""

    def __init__(self, kind: str, url: Any, settings: Settings | None, changes: dict[str, Any]) -> None:
        super().__init__(kind, url, settings, changes)
        when_ready(self.store.open, self.settings.wait_for_store)

    new_mailbox = queue.SimpleQueue

    @exits.busy
    def obtain(self, wish: Wish, make: Callable[[ThreadHolding], L], within: Any = None) -> L | Done:
        """Take a lock; or learn that it is an operation that was done while we waited."""
        attempt = wish.request.attempt
        try:
            grant = self.run(self.acquiring(wish), within)
            if isinstance(grant, Done):
                return grant
            attempt = grant.attempt  # it may be a successor of the one we began with
            kept = self.keep(grant, wish)
            lease = make(ThreadHolding(self, kept, wish))
            self.keeper.keep_for(kept, lease, wish)
            if exits.told_to_end:
                exits.end_if_told()
            if not self.closed:
                return lease
        except errors.HoldfastError as error:
            if isinstance(error, errors.LockTimeout):
                self.note_own_lease(error, wish)
            raise
        except BaseException as error:
            self.forget(wish.request.key, attempt, wish.request.lasts, waits=within is None)
            self.note_own_lease(error, wish)
            raise
        # Closed while we asked: nobody would renew it.
        self.forget(grant.key, grant.attempt, grant.ttl, waits=within is None)
        raise errors.Closed(repr(self))

    @exits.busy
    def forget(self, key: str, attempt: str, lasts: float, *, waits: bool = True, held: bool = False) -> None:
        """Undo an attempt. An interrupt can hit between the steps, where no plan hears of it; to withdraw
        what was released or withdrawn before is harmless. *lasts*: after which it has ended by itself.
        *waits*: see `Engine.undo`; *held*: see `Withdraw`.
        """
        if not self.attempts.made(attempt):
            return  # we are a forked child, and it is the parent's
        self.stop_waiting(attempt)
        self.keeper.drop(attempt)
        withdraw = Withdraw(key, attempt, held)
        try:
            if waits:
                self.store.execute(withdraw)
            else:
                self.keeper.pursue(withdraw, lasts)
        except errors.StoreError:
            self.keeper.pursue(withdraw, lasts)
        self.close_again()

    def ask(self, request: Request[A]) -> A:
        """Ask for something, again while the store is unavailable."""
        return self.run(self.asking(request))

    def pages(self, request: Any, what: str) -> Iterator[Any]:
        """Yield *what* pages of answers are made of; they are fetched one at a time."""
        while True:
            page = self.ask(request)
            yield from getattr(page, what)
            if page.after is None:
                return
            request = replace(request, after=page.after)

    @exits.busy
    def ask_within(self, connection: Any, request: Request[A]) -> A:
        """Ask inside a transaction of the caller's."""
        self.check_open()
        return self.store.execute_within(connection, request)

    @exits.busy
    def run(self, plan: Plan[T], within: Any = None) -> T:
        """Do what a plan wants, step by step, in this thread. *within*: a transaction to acquire in."""
        running = Running(plan, self.client, within)
        try:
            going = running.tell(None)
            while going:
                step = running.step
                try:
                    if type(step) is Wait:
                        answer: Any = self._wait(step)
                    else:
                        if type(step) is Acquire:
                            self.prepare(running, step)
                        if self.closed:
                            self.check_open()
                        answer = (
                            self.store.execute(step) if within is None else self._do_within(running, step)
                        )
                except errors.StoreError as error:
                    going = self.failed(running, error)
                else:
                    going = self.answered(running, answer)
                    if exits.told_to_end and type(answer) not in (Granted, Handed):  # kept first
                        exits.end_if_told()
            return running.result  # type: ignore[return-value]
        except BaseException:
            if self.client is running.client:  # otherwise we are a forked child, and it is the parent's
                self.undo(running)
            raise
        finally:
            if running.waiting is not None:
                self.stop_waiting(running.waiting)

    def _do_within(self, running: Running[Any], step: Any) -> Any:
        """Acquire inside a transaction of the caller's; nobody waits for a withdrawal."""
        if isinstance(step, Acquire):
            return self.store.execute_within(running.within, step)
        if isinstance(step, Withdraw):
            return self.pursue(running, step)
        return self.store.execute(step)

    def run_or(self, undo: Callable[[], object], plan: Plan[T]) -> T:
        """Run a plan, or *undo* it if an interrupt hits where the plan does not hear of it."""
        # Nothing may be called after `run`: see `leases.acquire`.
        try:
            return self.run(plan)
        except errors.HoldfastError:
            raise
        except BaseException:
            undo()
            raise

    @exits.idle
    def _wait(self, step: Wait) -> Signal | Handed | None:
        _, mailbox = self.mailboxes.get(step.attempt) or ("", self.new_mailbox())
        assert isinstance(mailbox, queue.SimpleQueue)
        timeout = None if step.until is None else max(step.until - boot_time(), 0.0)
        if timeout is not None:
            timeout = min(timeout, threading.TIMEOUT_MAX)
        try:
            return mailbox.get(timeout=timeout)  # type: ignore[no-any-return]
        except queue.Empty:
            return None
