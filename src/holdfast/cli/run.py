"""``holdfast run``: a command that runs only while its lock is held, and is stopped when it is lost.

The command has to be dead before anybody else can be granted the lock. So it is not stopped when the
lease is over but a *grace* before, and renewed early enough to leave time for a store that fails for a
while. What cannot be done in time is to follow a break: then the next holder may have the lock at once.
"""

from __future__ import annotations

import argparse
import os
import queue
import secrets
import shlex
import shutil
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast import errors
from holdfast.cli.child import Child, Ended, Events, Lost, Stopped, Told
from holdfast.cli.guardian import AT_ONCE
from holdfast.cli.interrupts import Interrupts
from holdfast.cli.options import Commands, add_url, duration
from holdfast.cli.output import HOLDERS_SHOWN, holders_of, say
from holdfast.cli.target import target
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.requests import LockView
from holdfast.core.settings import Settings
from holdfast.sync import Holdfast
from holdfast.sync_leases import Lease

DESCRIPTION = """\
Wait for a lock, run a command while holding it, and exit with the command's
exit code.

The lease is renewed for as long as the command runs. Should it be lost, the
command and all processes of its group get SIGTERM, and SIGKILL after a grace.
If the store cannot be reached, that is done early enough for the command to be
dead before anybody else gets the lock.

The command finds HOLDFAST_KEY, HOLDFAST_TOKEN (the fencing token: pass it on
to whatever the command writes to), HOLDFAST_OWNER and HOLDFAST_URL in its
environment. SIGINT, SIGTERM and SIGHUP are passed on to it.

With --shared the lock is held together with others that say so, and with
--permits it is a semaphore: as many as that run at once. Waiting is first come,
first served among all of them.
"""

EPILOG = """\
exit codes:
  the command's own, or 128 + n if signal n ended it
  75  somebody else has the lock (after --timeout, or at once with --no-wait),
      or waiting for it would have been a deadlock
  76  the lease was lost, and the command was stopped
  78  the lock cannot be had like this: another number of permits, or this
      owner has it shared
  126, 127  the command cannot be run, or was not found

examples:
  holdfast run nightly-report --no-wait -- ./report.sh
  holdfast run deploy:web --timeout 10m --max-hold 1h -- make deploy
  holdfast run resource:gpu --permits 4 -- ./train.sh
"""

CANNOT_RUN, NOT_FOUND = 126, 127
KILLED = 128 + 9
LOST = errors.CODES[errors.LeaseLost][0]

WITH_VALUE = (
    "--ttl",
    "--timeout",
    "--owner",
    "--max-hold",
    "--grace",
    "--permits",
    "--take",
    "--lock-delay",
    "--at-least",
    "--url",
)

SHORTEST = 0.2  # of a lease: less cannot be renewed in time on a machine that has anything else to do
MOST_GRACE = 5.0
LOOK = 1.0  # how often to look whether the lock was broken: a signal of it may not reach us


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the lease is, and how much of it stopping the command may take."""

    ttl: float
    grace: float
    max_hold: float | None


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run a command while holding a lock",
        usage="holdfast run KEY [options] -- COMMAND [ARG ...]",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("key", metavar="KEY", help="the name of the lock")
    parser.add_argument(
        "--ttl",
        type=duration,
        default=Settings().ttl,
        metavar="S",
        help="how long the lock stays taken if this machine dies (default: 30)",
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--timeout", type=duration, metavar="S", help="how long to wait (default: for ever)")
    waiting.add_argument("--no-wait", action="store_true", help="do not wait at all")
    parser.add_argument(
        "--owner",
        metavar="OWNER",
        help="who holds the lock (default: a new name each time). The same owner may enter again: two"
        " runs with one owner do not exclude each other",
    )
    parser.add_argument("--max-hold", type=duration, metavar="S", help="stop the command after this long")
    parser.add_argument(
        "--grace",
        type=duration,
        metavar="S",
        help="how long the command has between SIGTERM and SIGKILL, at most half the ttl"
        " (default: a quarter of the ttl, at most 5; 0: SIGKILL at once)",
    )
    parser.add_argument(
        "--shared", action="store_true", help="hold it together with others that have it shared"
    )
    parser.add_argument(
        "--permits", type=int, metavar="N", help="hold one of N permits; the store remembers how many it has"
    )
    parser.add_argument(
        "--take",
        type=int,
        metavar="K",
        help="hold K permits instead of one; without --permits of as many as the store says",
    )
    parser.add_argument(
        "--lock-delay",
        type=duration,
        default=0.0,
        metavar="S",
        help="should the lease run out, nobody gets the lock for this long (default: 0)",
    )
    parser.add_argument(
        "--at-least",
        type=duration,
        default=0.0,
        metavar="S",
        help="keep the lock taken for this long from its grant, although the command has ended before"
        " (default: 0)",
    )
    add_url(parser)
    parser.set_defaults(call=call)


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of ``run`` at ``--``: what follows is the command's business alone."""
    words: list[str] = []  # neither options nor their values: run, then the key
    option = ""
    for at, word in enumerate(argv):
        if word == "--" and words:
            return argv[:at], argv[at + 1 :]
        if option in WITH_VALUE:
            option = ""
        elif word.startswith("-") and word != "-":
            option = word
        else:
            option = ""
            words.append(word)
        if words and words[0] != "run":
            break
        if len(words) > 2:
            meant = shlex.join(["holdfast", *argv[:at], "--", *argv[at:]])
            raise errors.SettingsError(f"put -- before the command: {meant}")
    return argv, []


def call(args: argparse.Namespace) -> int:
    """Acquire, run, and see to it that the command never outlives the lease."""
    command: list[str] = args.guarded
    if not command:
        raise errors.SettingsError("there is no command; put it behind --: holdfast run KEY -- COMMAND")
    if not hasattr(os, "killpg"):
        raise errors.SettingsError("run needs process groups, which this system does not have")
    key = keys.validate(args.key)
    timing = _timing(args.ttl, args.grace, args.max_hold)
    if (problem := _cannot_run(command[0])) is not None:  # better now than after an hour in the queue
        return problem
    owner = args.owner or f"{Path(command[0]).name[:40]}-{secrets.token_hex(6)}"
    events: Events = queue.SimpleQueue()
    with Interrupts() as interrupts, Holdfast(target(args), settings=_settings(timing)) as locks:
        lease = locks.acquire(
            key,
            owner=owner,
            timeout=0 if args.no_wait else args.timeout,
            max_hold=timing.max_hold,
            mode="shared" if args.shared else "exclusive",
            permits=0 if args.permits is None and args.take is not None else args.permits,
            take=1 if args.take is None else args.take,
            lock_delay=args.lock_delay,
            at_least=args.at_least,
            on_lost=lambda _: events.put(Lost()),
        )
        interrupts.deliver_to(lambda number: events.put(Told(number)))
        return _run(command, locks, lease, timing, events)


def _timing(ttl: float, grace: float | None, max_hold: float | None) -> Timing:
    for name, given in (("ttl", ttl), ("max-hold", max_hold)):
        if given is not None and given < SHORTEST:
            raise errors.SettingsError(
                f"{name} is {given:g} s, which is too short: use {SHORTEST:g} s or more"
            )
    if max_hold is not None:
        ttl = min(ttl, max_hold)
    if grace is None:
        grace = min(MOST_GRACE, ttl / 4)
    if grace > ttl / 2:
        raise errors.SettingsError(
            f"a grace of {grace:g} s is more than half of the lease ({ttl:g} s): use a longer ttl"
        )
    return Timing(ttl, grace, max_hold)


def _settings(timing: Timing) -> Settings:
    """Renew after half of the time that is left before the command would have to be stopped."""
    usable = timing.ttl - timing.grace - Settings().margin_for(timing.ttl)
    return Settings(ttl=timing.ttl, renew_at=usable / timing.ttl / 2)


def _cannot_run(program: str) -> int | None:
    if shutil.which(program) is not None:
        return None
    if os.sep in program and os.path.exists(program):
        say(f"{program}: not a program that you may run")
        return CANNOT_RUN
    say(f"{program}: command not found")
    return NOT_FOUND


def _run(command: Sequence[str], locks: Holdfast, lease: Lease, timing: Timing, events: Events) -> int:
    started = boot_time() + lease.remaining - timing.ttl  # when it was asked for, however late we are
    env = {
        **os.environ,
        "HOLDFAST_KEY": lease.key,
        "HOLDFAST_TOKEN": str(lease.token),
        "HOLDFAST_OWNER": lease.owner,
        "HOLDFAST_URL": locks.url,
    }
    try:
        until = boot_time() + lease.remaining
        child = Child(command, env, grace=timing.grace, until=until, put=events.put)
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    over = threading.Event()
    looking = threading.Thread(target=_look, args=(locks, lease, events, over), daemon=True)
    looking.start()
    try:
        code = _guard(child, lease, timing, started, events)
    finally:
        over.set()
        child.close()
    held = lease.held
    looking.join(LOOK)
    return LOST if code is None else _release(lease, code, held=held)


def _guard(child: Child, lease: Lease, timing: Timing, started: float, events: Events) -> int | None:
    """Wait for the end of the command; return its exit code, or None if it had to be stopped."""
    while (left := lease.remaining - timing.grace) > 0:
        child.trust_until(boot_time() + left + timing.grace)
        try:
            # Timeouts do not count the time that a machine is suspended. So look at the clock now and then.
            event = events.get(timeout=min(left, LOOK))
        except queue.Empty:
            continue
        if isinstance(event, Ended):
            return event.code
        if isinstance(event, Stopped):
            if event.number == signal.SIGTSTP:  # and not for reading before it had the terminal
                say("a stopped command would keep the lock; continued")
            child.go_on()
        elif isinstance(event, Told):
            child.signal(event.number)
        elif event.loss is not None:
            say(f"{event.loss}; stopping the command")
            _stop(child, lease, timing.grace, events, trusted=False)
            return None
    try:
        lease.check()
    except errors.LeaseLost as loss:
        say(f"{loss}; stopping the command")
        # Broken: the lock may be somebody else's already, and time to clean up does more good than
        # harm. Over by the clock (we were suspended): there is no time left to give.
        _stop(child, lease, timing.grace if loss.reason == "broken" else 0.0, events, trusted=False)
        return None
    why = "it could not be renewed"
    if timing.max_hold is not None and boot_time() - started + lease.remaining > 0.9 * timing.max_hold:
        why = f"max-hold is {timing.max_hold:g} s"
    say(f"lease of {lease.key!r} (token {lease.token}) is running out: {why}; stopping the command")
    _stop(child, lease, timing.grace, events, trusted=True)
    return None


def _stop(child: Child, lease: Lease, grace: float, events: Events, *, trusted: bool) -> None:
    """Stop the command within *grace*; if the lease is still *trusted*, before its end in any case."""
    end = boot_time() + grace
    if trusted:
        end = min(end, boot_time() + lease.remaining - AT_ONCE)
    child.trust_until(end + AT_ONCE, stopping=True)
    if grace > 0:
        child.ask_to_stop()
    ended: Ended | None = None
    in_time = False
    while not in_time and (left := end - boot_time()) > 0:
        # Once the command itself has ended, what is left of its group can only be looked for.
        with suppress(queue.Empty):
            event = events.get(timeout=left if ended is None else min(left, 0.02))
            ended = event if isinstance(event, Ended) else ended
        in_time = ended is not None and not child.exists()
    if not in_time:
        child.signal(signal.SIGKILL)
    while ended is None:
        event = events.get()
        ended = event if isinstance(event, Ended) else None
    if grace > 0 and (not in_time or ended.code == KILLED):  # by us, or by the guardian if we were late
        say("the command did not stop in time, and was killed")


def _look(locks: Holdfast, lease: Lease, events: Events, over: threading.Event) -> None:
    """Look whether the lock is still ours by the store's account."""
    while not over.wait(LOOK):
        with suppress(errors.StoreError, errors.Closed):
            view = locks.inspect(lease.key)
            if view is None or not _has(view, lease.token):
                events.put(Lost(_why(locks, lease)))
                return


def _has(view: LockView, token: int) -> bool:
    """Tell whether a lease is among those that are shown; or may be behind them, if they are many."""
    holders = holders_of(view)
    return len(holders) >= HOLDERS_SHOWN or any(holder.token == token for holder in holders)


def _why(locks: Holdfast, lease: Lease) -> errors.LeaseLost:
    for event in reversed(locks.history(lease.key)):
        if event.kind == "broken" and event.token == lease.token:
            return errors.LeaseLost(lease.key, "broken", token=lease.token, by=event.by, detail=event.reason)
    return errors.LeaseLost(lease.key, "unknown", token=lease.token)


def _release(lease: Lease, code: int, *, held: bool) -> int:
    """Release after the command has ended with *code*; return the exit code."""
    try:
        lease.release()
    except errors.LeaseLost as loss:
        # While we can trust a lease, nothing but a break can end it. What else is heard of now came after
        # the command, which is none the worse for it.
        if not held or loss.reason == "broken":
            say(f"{loss}; the command had ended with exit code {code}")
            return LOST
    except errors.StoreError as error:
        say(f"{lease.key!r} could not be released and ends by itself in {lease.ttl:g} s or less: {error}")
    return code
