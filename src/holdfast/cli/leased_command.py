"""A command under a lease: it runs while the lease is trusted, and is dead before anybody else can have it.

So it is not stopped when the lease is over but a *grace* before, and renewed early enough to leave time for a
store that fails for a while. What cannot be done in time is to follow a break: then the next holder may have
the lock at once. Where the lease comes from, and what becomes of it, is up to `run` and `every`.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast import errors
from holdfast.cli.child import Child, CommandEnded, CommandStopped, Events, LeaseIsLost, SignalCame
from holdfast.cli.guardian import AT_ONCE
from holdfast.cli.interrupts import Interrupts
from holdfast.cli.options import Unsuccessful, patience
from holdfast.cli.orphans import reap_orphans
from holdfast.cli.output import HOLDERS_SHOWN, holders_of, say
from holdfast.cli.target import target
from holdfast.client.sync.client import Holdfast
from holdfast.client.sync.leases import Lease
from holdfast.clock import boot_time
from holdfast.core.requests import LockView
from holdfast.core.settings import Settings

if TYPE_CHECKING:
    from holdfast.client.sync.schedules import Run

Held: TypeAlias = "Lease | Run"  # what a command runs under

CANNOT_RUN, NOT_FOUND = 126, 127
KILLED = 128 + 9

SHORTEST = 0.2  # of a lease: less cannot be renewed in time on a machine that has anything else to do
MOST_GRACE = 5.0
LOOK = 1.0  # how often to look whether the lock was broken: a signal of it may not reach us


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the lease is, and how much of it stopping the command may take.

    *patience*: how long the command may take to end after we were told to; None: as long as it likes.
    """

    ttl: float
    grace: float
    longest: float | None  # after which the command is stopped
    option: str  # that says so
    patience: float | None = None

    @property
    def settings(self) -> Settings:
        """Renew after half of the time that is left before the command would have to be stopped.

        A lease that is entered by its hand-over is shorter at first than the grace may be.
        """
        usable = self.ttl - self.grace - Settings().margin_for(self.ttl)
        return Settings(ttl=self.ttl, renew_at=usable / self.ttl / 2, enters=False)


def timing_of(ttl: float, grace: float | None, longest: float | None, option: str) -> Timing:
    """Return the timing that was asked for, checked."""
    for name, given in (("ttl", ttl), (option, longest)):
        if given is not None and given < SHORTEST:
            raise errors.SettingsError(
                f"{name} is {given:g} s, which is too short: use {SHORTEST:g} s or more"
            )
    if longest is not None:
        ttl = min(ttl, longest)
    if grace is None:
        grace = min(MOST_GRACE, ttl / 4)
    if grace > ttl / 2:
        raise errors.SettingsError(
            f"a grace of {grace:g} s is more than half of the lease ({ttl:g} s): use a longer ttl"
        )
    return Timing(ttl, grace, longest, option)


def check_command(command: Sequence[str], usage: str) -> None:
    """Complain if there is no such program: better now than after an hour in a queue."""
    if not command:
        raise errors.SettingsError(f"there is no command; put it after --: {usage} -- COMMAND")
    if not hasattr(os, "killpg"):
        raise errors.SettingsError("that needs process groups, which this system does not have")
    program = command[0]
    if shutil.which(program) is None:
        if os.sep in program and os.path.exists(program):
            raise Unsuccessful(f"{program}: not a program that you may run", CANNOT_RUN)
        raise Unsuccessful(f"{program}: command not found", NOT_FOUND)


@contextmanager
def under_signals(args: argparse.Namespace, timing: Timing) -> Iterator[tuple[Interrupts, Holdfast]]:
    """Heed signals, reap orphans, and open the store that the arguments name."""
    reap_orphans()
    with (
        Interrupts() as interrupts,
        Holdfast(target(args), settings=timing.settings, wait_for_store=patience(args)) as locks,
    ):
        yield interrupts, locks


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended: *code* is None if it had to be stopped. *held*: its lease was trusted then."""

    code: int | None
    held: bool


def perform(
    command: Sequence[str],
    locks: Holdfast,
    lease: Held,
    timing: Timing,
    events: Events,
    *,
    terminal: bool = True,
    **more: str,
) -> CommandOutcome:
    """Run a command under a lease. The code that has the lease puts what happens to it into *events*.

    The command finds the lease in its environment, and *more*.
    """
    found = {"KEY": lease.key, "TOKEN": str(lease.token), **more, "URL": locks.url}
    env = {**os.environ, **{f"HOLDFAST_{name}": value for name, value in found.items()}}
    started = boot_time() + lease.remaining - timing.ttl  # when it was asked for, however late we are
    try:
        until = boot_time() + lease.remaining
        child = Child(command, env, grace=timing.grace, until=until, put=events.put, terminal=terminal)
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        return CommandOutcome(code, lease.remaining > 0)
    over = threading.Event()
    looking = threading.Thread(target=_look, args=(locks, lease, events, over), daemon=True)
    looking.start()
    try:
        ended = _Guard(child, lease, timing, started, events).wait()
    finally:
        over.set()
        child.close()
    held = lease.remaining > 0
    looking.join(LOOK)
    return CommandOutcome(ended, held)


class _Guard:
    """Watches over a command, its lease and its time."""

    def __init__(self, child: Child, lease: Held, timing: Timing, started: float, events: Events) -> None:
        self._child = child
        self._lease = lease
        self._timing = timing
        self._started = started
        self._events = events
        self._kill_at: float | None = None  # once we were told to end

    def _remaining(self) -> float:
        """Return for how long the command may live."""
        left = self._lease.remaining
        if self._timing.longest is not None:
            left = min(left, self._started + self._timing.longest - boot_time())
        return left

    def wait(self) -> int | None:
        """Wait for the end of the command; return its exit code, or None if it had to be stopped."""
        child, timing = self._child, self._timing
        while (left := self._remaining() - timing.grace) > 0:
            child.trust_until(boot_time() + left + timing.grace)
            if self._kill_at is not None:
                if boot_time() >= self._kill_at:
                    say("the command did not stop in time, and was killed")
                    child.signal(signal.SIGKILL)
                    self._kill_at = None
                else:
                    left = min(left, self._kill_at - boot_time())
            try:
                # Timeouts do not count the time that a machine is suspended. So look at the clock now and
                # then.
                event = self._events.get(timeout=min(left, LOOK))
            except queue.Empty:
                continue
            if isinstance(event, CommandEnded):
                return event.code
            if isinstance(event, CommandStopped):
                if event.number == signal.SIGTSTP:  # and not for reading before it had the terminal
                    say("a stopped command would keep the lock; continued")
                child.go_on()
            elif isinstance(event, SignalCame):
                child.signal(event.number)
                if timing.patience is not None and self._kill_at is None:
                    self._kill_at = boot_time() + timing.patience
            elif event.loss is not None:
                say(f"{event.loss}; stopping the command")
                self._stop(timing.grace, trusted=False)
                return None
        self._stop_in_time()
        return None

    def _stop_in_time(self) -> None:
        lease, timing = self._lease, self._timing
        try:
            lease.check()
        except errors.LeaseLost as loss:
            say(f"{loss}; stopping the command")
            # Broken: the lock may be somebody else's already, and time to clean up does more good than
            # harm. Over by the clock (we were suspended): there is no time left to give.
            self._stop(timing.grace if loss.reason == "broken" else 0.0, trusted=False)
            return
        why = "it could not be renewed"
        if (
            timing.longest is not None
            and boot_time() - self._started + lease.remaining > 0.9 * timing.longest
        ):
            why = f"{timing.option} is {timing.longest:g} s"
        say(f"lease of {lease.key!r} (token {lease.token}) is running out: {why}; stopping the command")
        self._stop(timing.grace, trusted=True)

    def _stop(self, grace: float, *, trusted: bool) -> None:
        """Stop the command within *grace*; if the lease is still *trusted*, before its end in any case."""
        child = self._child
        end = boot_time() + grace
        if trusted:
            end = min(end, boot_time() + self._remaining() - AT_ONCE)
        child.trust_until(end + AT_ONCE, stopping=True)
        if grace > 0:
            child.ask_to_stop()
        ended: CommandEnded | None = None
        in_time = False
        while not in_time and (left := end - boot_time()) > 0:
            # Once the command itself has ended, what is left of its group can only be looked for.
            with suppress(queue.Empty):
                event = self._events.get(timeout=left if ended is None else min(left, 0.02))
                ended = event if isinstance(event, CommandEnded) else ended
            in_time = ended is not None and not child.exists()
        if not in_time:
            child.signal(signal.SIGKILL)
        while ended is None:
            event = self._events.get()
            ended = event if isinstance(event, CommandEnded) else None
        if grace > 0 and (not in_time or ended.code == KILLED):  # by us, or by the guardian if we were late
            say("the command did not stop in time, and was killed")


def _look(locks: Holdfast, lease: Held, events: Events, over: threading.Event) -> None:
    """Look whether the lock is still ours by the store's account."""
    while not over.wait(LOOK):
        with suppress(errors.StoreError, errors.Closed):
            view = locks.inspect(lease.key)
            if view is None or not _has(view, lease.token):
                events.put(LeaseIsLost(_why(locks, lease)))
                return


def _has(view: LockView, token: int) -> bool:
    """Tell whether a lease is among those that are shown; or may be behind them, if they are many."""
    holders = holders_of(view)
    return len(holders) >= HOLDERS_SHOWN or any(holder.token == token for holder in holders)


def _why(locks: Holdfast, lease: Held) -> errors.LeaseLost:
    for event in reversed(locks.history(lease.key)):
        if event.kind == "broken" and event.token == lease.token:
            return errors.LeaseLost(lease.key, "broken", token=lease.token, by=event.by, detail=event.reason)
    return errors.LeaseLost(lease.key, "unknown", token=lease.token)
