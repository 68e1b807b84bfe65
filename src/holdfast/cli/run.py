"""``holdfast run``: a command that runs only while its lock is held, and is stopped when it is lost."""

from __future__ import annotations

import argparse
import queue
import secrets
from pathlib import Path

from holdfast import errors
from holdfast.cli.child import Events, LeaseIsLost, SignalCame
from holdfast.cli.leased_command import check_command, perform, timing_of, under_signals
from holdfast.cli.options import add, add_grace, add_store
from holdfast.cli.output import say
from holdfast.client.sync.leases import Lease
from holdfast.core import keys
from holdfast.core.settings import Settings

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

LOST = errors.CODES[errors.LeaseLost][0]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "key KEY", "the name of the lock")
    ttl = "how long the lock stays taken if this machine dies (default: 30)"
    add(parser, "--ttl S", ttl, default=Settings().ttl)
    waiting = parser.add_mutually_exclusive_group()
    add(waiting, "--timeout S", "how long to wait (default: for ever)")
    add(waiting, "--no-wait", "do not wait at all")
    owner = (
        "who holds the lock (default: a new name each time). The same owner may enter again: two"
        " runs with one owner do not exclude each other"
    )
    add(parser, "--owner OWNER", owner)
    add(parser, "--max-hold S", "stop the command after this long")
    add_grace(parser)
    add(parser, "--shared", "hold it together with others that have it shared")
    add(parser, "--permits N", "hold one of N permits; the store remembers how many it has")
    take = "hold K permits instead of one; without --permits of as many as the store says"
    add(parser, "--take K", take, type=int)
    delay = "should the lease run out, nobody gets the lock for this long (default: 0)"
    add(parser, "--lock-delay S", delay, default=0.0)
    least = (
        "keep the lock taken for this long from its grant, although the command has ended before (default: 0)"
    )
    add(parser, "--at-least S", least, default=0.0)
    add_store(parser)


def call(args: argparse.Namespace) -> int:
    """Acquire, run, and see to it that the command never outlives the lease."""
    command: list[str] = args.guarded
    key = keys.validate(args.key)
    timing = timing_of(args.ttl, args.grace, args.max_hold, "max-hold")
    check_command(command, "holdfast run KEY")
    owner = args.owner or f"{Path(command[0]).name[:40]}-{secrets.token_hex(6)}"
    events: Events = queue.SimpleQueue()
    with under_signals(args, timing) as (interrupts, locks):
        lease = locks.acquire(
            key,
            owner=owner,
            timeout=0 if args.no_wait else args.timeout,
            max_hold=timing.longest,
            mode="shared" if args.shared else "exclusive",
            permits=0 if args.permits is None and args.take is not None else args.permits,
            take=1 if args.take is None else args.take,
            lock_delay=args.lock_delay,
            at_least=args.at_least,
            on_lost=lambda _: events.put(LeaseIsLost()),
        )
        interrupts.deliver_to(lambda number: events.put(SignalCame(number)))
        outcome = perform(command, locks, lease, timing, events, OWNER=lease.owner)
        return LOST if outcome.code is None else _release(lease, outcome.code, held=outcome.held)


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
