"""``holdfast every``: a command that is run once a tick, by one of all nodes that say the same.

The schedule's own thread waits for ticks and takes their leases; commands are run here, in the main thread,
where signals are heard.
"""

from __future__ import annotations

import argparse
import hashlib
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.child import Events, LeaseIsLost, SignalCame
from holdfast.cli.leased_command import LOOK, Timing, check_command, perform, timing_of, under_signals
from holdfast.cli.options import add, add_grace, add_store, duration, is_duration
from holdfast.cli.output import SaidAlready, duration_text, say
from holdfast.cli.target import shown, target
from holdfast.client.sync.client import Holdfast
from holdfast.client.ticks import MISSED
from holdfast.clock import boot_time
from holdfast.core.data import replace
from holdfast.core.settings import Settings
from holdfast.signal_mask import block_signals

if TYPE_CHECKING:
    from holdfast.client.sync.schedules import Run

DESCRIPTION = """\
Run a command on a schedule, for containers without cron: each tick is run once,
by one of all nodes that say the same. It goes on until SIGTERM, SIGINT or
SIGHUP ends it, however the command ends; a line on stderr says how each run
ended.

SCHEDULE is a cron expression in quotes, or the time from tick to tick: 30, 5m.
Ticks come by the store's clock. What all nodes share is the name: by default
the command's program, and a hash of the whole command, so that the same command
is the same schedule everywhere. If the nodes' schedules differ, that of the
node that was started last holds.

The command runs under the lease of the lock every:NAME. It is renewed for as
long as the command runs. Should it be lost, the command is stopped as by
'holdfast run'. It finds HOLDFAST_KEY, HOLDFAST_TOKEN (the fencing token),
HOLDFAST_TICK (when it should have begun) and HOLDFAST_URL in its environment,
and nothing on stdin.

A signal is passed on to a command that runs, which has the grace to end. Unless
its exit code is 0 then, its tick goes to another node at once, or to this one
when it comes back.
"""

EPILOG = """\
exit codes:
  0  a signal ended it
  64  the schedule, the time zone or another option makes no sense
  126, 127  the command cannot be run, or was not found, when it is started

examples:
  holdfast every '*/5 * * * *' -- ./cleanup.sh
  holdfast every '30 2 * * *' --timezone Europe/Berlin --at-most 1h -- ./report
  holdfast every 30s --name poll --missed skip -- ./poll.sh
"""

NOTICE = 0.2  # seconds until a loss is noticed that nobody has told us of


class CommandFailed(SaidAlready):
    """The command of a run did not end well."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "schedule SCHEDULE", "a cron expression, or a duration")
    add(parser, "--name NAME", "what nodes share (default: see above)")
    add(parser, "--timezone ZONE", "of the cron expression (default: UTC)", default="UTC")
    missed = (
        "of ticks that nobody could run in time: once (the default) runs the last of them, skip none"
        " that is more than a minute late, all runs all"
    )
    add(parser, "--missed WHAT", missed, choices=MISSED, default="once")
    add(parser, "--at-least S", "begin no sooner than this after the last run began", default=0.0)
    add(parser, "--at-most S", "stop a command that runs this long")
    ttl = "after how long another node takes over if this machine dies (default: 30)"
    add(parser, "--ttl S", ttl, default=Settings().ttl)
    add_grace(parser)
    add_store(parser)


def call(args: argparse.Namespace) -> None:
    """Run the command at each tick until a signal comes."""
    command: list[str] = args.guarded
    timing = timing_of(args.ttl, args.grace, args.at_most, "at-most")
    check_command(command, "holdfast every SCHEDULE")
    with under_signals(args, timing) as (interrupts, locks):
        node = Node(command, locks, replace(timing, patience=timing.grace))
        schedule = locks.every(
            duration(args.schedule) if is_duration(args.schedule) else args.schedule,
            name=args.name or default_name(command),
            timezone=args.timezone,
            missed=args.missed,
            at_least=args.at_least,
            at_most=args.at_most,
        )(node.tick)
        interrupts.deliver_to(node.told)
        say(f"{schedule.key!r} is run here and wherever else it is scheduled in {shown(target(args))}")
        node.serve()
        if not node.gives_back:
            schedule.stop(timeout=locks.settings.release_timeout)  # what a run came to has to be written down


def default_name(command: Sequence[str]) -> str:
    """Return a name that is the same wherever the same command is."""
    digest = hashlib.sha256("\0".join(command).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{Path(command[0]).name[:40]}-{digest[:8]}"


class _Turn:
    """A run that waits for the main thread, and then for the end of its command."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events: Events = queue.SimpleQueue()
        self.done = threading.Event()
        self.error = ""


class Node:
    """Runs the command for the ticks that this node gets."""

    def __init__(self, command: Sequence[str], locks: Holdfast, timing: Timing) -> None:
        self._command = command
        self._locks = locks
        self._timing = timing
        self._turns: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()  # None: look what has changed
        self._turn: _Turn | None = None
        self._told = 0  # the signal that ends us
        self.gives_back = False  # a tick that was not run to its end, for another node

    def tick(self, run: Run) -> None:
        """Have the command run by the main thread. Called in a thread of its own."""
        block_signals()
        turn = _Turn(run)
        self._turns.put(turn)
        while not turn.done.wait(NOTICE):
            if run.lost.is_set():
                turn.events.put(LeaseIsLost())
                turn.done.wait()
        if self.gives_back:
            threading.Event().wait()  # closing the client returns the tick; to end would complete it
        if turn.error:
            raise CommandFailed(turn.error)

    def told(self, number: int) -> None:
        """Take note of a signal. Called in the main thread, whatever that is doing."""
        self._told = self._told or number
        self._turns.put(None)
        if self._turn is not None:
            self._turn.events.put(SignalCame(number))

    def serve(self) -> None:
        """Run what comes, until a signal does."""
        while not self._told:
            try:
                turn = self._turns.get(timeout=LOOK)
            except queue.Empty:
                continue
            if turn is not None:
                self._serve(turn)

    def _serve(self, turn: _Turn) -> None:
        self._turn = turn
        try:
            if self._told:  # it came just too late
                self.gives_back = True
            else:
                turn.error = self._run(turn)
        finally:
            self._turn = None
            turn.done.set()

    def _run(self, turn: _Turn) -> str:
        run = turn.run
        began, tick = boot_time(), run.tick.isoformat()
        outcome = perform(
            self._command, self._locks, run, self._timing, turn.events, terminal=False, TICK=tick
        )
        took = duration_text(boot_time() - began)
        which = f"{run.key!r}: the run of {tick}"
        if outcome.code is None:
            say(f"{which} was stopped after {took}")
            return "the command was stopped"
        self.gives_back = bool(self._told and outcome.code)
        then = "; it is left to another node" if self.gives_back else ""
        say(f"{which} ended with exit code {outcome.code} after {took}{then}")
        return f"exit code {outcome.code}" if outcome.code else ""
