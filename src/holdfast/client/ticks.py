"""What a node asks the store for so that each tick is run once, as a plan that never waits.

A schedule is one piece of work, ``every:{name}``, that recurs. Its row says which tick it stands for, and
from when on it is due by the store's clock. The node that gets it assigned runs that tick under the lease,
and ends it so that it is offered again for the next one. There is one row: so no tick is run twice unless its
lease has ended unfinished, and no two runs overlap.

A node that finds no row is assigned the work, learns the store's time by that, and returns it for the first
tick.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Literal, TypeVar, get_args

from holdfast import errors
from holdfast.client.calendar import Calendar, read
from holdfast.core.cluster import Assign, Assigned, Ending, Finish, Finished, InspectWork, NotDue, WorkView
from holdfast.core.data import data, replace
from holdfast.core.plans import TICK, TRANSIENT, Abandoned, Clock, Grant, Roll, Wait
from holdfast.core.requests import Busy, Client, NotHeld, Request, Withdraw
from holdfast.core.settings import Settings
from holdfast.log import log

A = TypeVar("A")

Missed = Literal["once", "skip", "all"]
MISSED: tuple[Missed, ...] = get_args(Missed)

GRACE = 60.0  # seconds: how late a tick may be run if missed ones are skipped
SPREAD = 0.05  # seconds: nodes come over this time for what is due, not all at the same instant
FIRST_LOOK = 1.0  # seconds: how soon to look again if somebody else runs it; then twice as long, and so on
SHORTEST_LOOK = 0.02  # seconds
SAFETY = 300.0  # seconds: look this often although the store has said that it is too early
TROUBLE = 30.0  # seconds: ask again after an error that does not pass by itself
CLOSED = "client closed"
TOO_LONG = "at_most reached"


@data
class Job:
    """What to keep time for."""

    key: str
    calendar: Calendar
    missed: Missed = "once"
    at_least: float = 0.0
    at_most: float | None = None


@data
class Row:
    """What is written down with the work: the schedule it goes by, its tick, and when the last run began."""

    schedule: dict[str, Any]
    tick: float
    began: float | None = None

    def dump(self) -> str:
        """Return it as the work's data: JSON that people can read."""
        times = {"tick": _shown(self.tick)} | ({} if self.began is None else {"began": _shown(self.began)})
        return json.dumps(self.schedule | times)

    @staticmethod
    def load(text: str) -> Row | None:
        """Read what `dump` has written. None if it is something else."""
        try:
            found = json.loads(text)
            tick, began = found.pop("tick"), found.pop("began", None)
            return Row(found, _instant(tick), None if began is None else _instant(began))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@data
class Begin:
    """Have the shell begin to run a tick. *tick* is by the store's clock."""

    grant: Grant
    asked: float
    tick: float


@data
class Await:
    """Wait for the end of what was begun: a `Result`, or None if *until* on the local clock comes first."""

    until: float | None


@data
class Result:
    """What became of a run: *error* is empty if it was done."""

    error: str = ""


@data
class Cease:
    """Do not renew the lease any more. With a *reason* the run has lost it by that, and is told."""

    attempt: str
    reason: str = ""


Step = Request[Any] | Wait | Begin | Await | Cease
Plan = Generator[Step, Any, A]


def to_run(job: Job, calendar: Calendar, tick: float, at: float) -> float | None:
    """Return the tick to run at the store's time *at*, if the work stands for *tick*; None: none."""
    if tick > at:
        return None
    if job.missed == "all":
        return tick
    latest = max(tick, calendar.latest(at))
    return None if job.missed == "skip" and at - latest > GRACE else latest


class Timekeeper:
    """The plan of one schedule on one node, and what is known about it."""

    def __init__(
        self,
        job: Job,
        *,
        client: Client,
        owner: str,
        ttl: float,
        settings: Settings,
        attempts: Callable[[], str],
        clock: Clock,
        roll: Roll,
        repeats: bool = False,
    ) -> None:
        self.job = job
        self.stopping = False  # set by code that wants no more runs here, and then wakes what waits
        self.next_until: float | None = None  # when the next tick comes, on the local clock, as far as known
        self._request = Assign(key=job.key, attempt="", owner=owner, ttl=ttl, client=client, again=True)
        self._owner = owner
        self._ttl = ttl
        self._settings = settings
        self._attempts = attempts
        self._clock = clock
        self._roll = roll
        self._repeats = repeats  # the store's transport may repeat requests by itself
        self._attempt = ""  # kept from one asking to the next: a late copy of the last one is then ours too
        self._retire = False  # an answer was lost, and a copy may be under way
        self._failures = 0
        self._busy = 0  # how often in a row somebody else had it
        self._compared = False  # we have seen what schedule the row goes by
        self._changing = False  # the row goes by another schedule, and ours is newer

    def plan(self) -> Plan[None]:
        """Run ticks until told to stop."""
        try:
            while not self.stopping:
                if not self._compared:
                    yield from self._compare()
                self._attempt = self._attempt or self._attempts()
                asked = self._clock()
                if (assigned := (yield from self._take(asked))) is not None:
                    yield from self._serve(assigned, asked)
            self.next_until = None
            yield from self._withdraw()
        except Abandoned:
            yield from self._withdraw()
            raise

    def _compare(self) -> Plan[None]:
        """See whether the row goes by another schedule than ours."""
        view: WorkView | None = yield from self._ask(InspectWork(self.job.key))
        row = None if view is None else Row.load(view.data)
        if row is not None:  # otherwise it is written just now, by us or by another
            self._compared = True
            self._changing = row.schedule != self.job.calendar.text

    def _withdraw(self) -> Plan[None]:
        """See to it that no copy of what we have asked takes the work for nobody."""
        if self._retire:
            yield from _quietly(Withdraw(self.job.key, self._attempt))

    # Taking.

    def _take(self, asked: float) -> Plan[Assigned | None]:
        """Ask for the work once; if it is not to be had, wait until it may be."""
        before, self._retire = self._retire, True
        try:
            answer = yield replace(self._request, attempt=self._attempt, due=not self._changing)
        except Abandoned:
            raise
        except Exception as error:  # noqa: BLE001 - nobody is there to be told; it must go on
            if isinstance(error, errors.StoreUnavailable):
                self._retire = before
            yield self._trouble(error)
            return None
        self._retire = before or self._repeats
        self._failures = 0
        now = self._clock()
        if isinstance(answer, Assigned):
            if now < self._trusted_until(asked):
                self.next_until = None
                self._busy = 0
                return answer
            self._retire = True
            yield self._trouble(errors.StoreUnavailable("the store answers too slowly for the lease"))
        elif isinstance(answer, NotHeld):  # it was ours, and has ended, while the answers were lost
            self._attempt, self._retire = "", False
        elif isinstance(answer, NotDue):
            self.next_until = now + answer.due_in
            self._busy = 0
            if not self._compared:
                return None
            yield self._wait(min(self.next_until + TICK + SPREAD * self._roll(), now + SAFETY))
        elif isinstance(answer, Busy):
            self.next_until = None
            # Most runs are short. A long one is asked about more and more rarely, and when its lease may have
            # ended.
            pause = FIRST_LOOK * 2.0 ** min(self._busy, 20) * (0.75 + self._roll() / 2)
            self._busy += 1
            left = max(answer.expires_in, SHORTEST_LOOK) + SPREAD * self._roll()
            yield self._wait(now + min(pause, left))
        else:
            yield self._trouble(errors.StoreError(f"the store has answered {answer!r}"))
        return None

    def _serve(self, assigned: Assigned, asked: float) -> Plan[None]:
        """Run the tick that the work stands for, if it is to be run, and have it offered for the next."""
        at = assigned.at
        row = Row.load(assigned.data)
        calendar = self._calendar(row)
        # Retired: runs are rare, and so it is known for sure which copy of a request has done what.
        finish = Finish(self.job.key, self._attempt, assigned.token, "returned", retire=True)
        if self.stopping:  # it came just too late: somebody else is to have it
            yield from self._finish(finish)
            return
        tick = None if row is None else to_run(self.job, calendar, row.tick, at)
        if tick is None:  # the row is new, or the schedule, or the tick is too late
            following = Row(calendar.text, calendar.after(at), None if row is None else row.began)
            yield from self._finish(self._for_next(finish, following, "returned"))
            return
        following = Row(calendar.text, calendar.after(tick), at)
        attempt, until = self._attempt, self._trusted_until(asked)
        at_most = self.job.at_most
        try:
            grant = Grant(self.job.key, attempt, self._owner, assigned.token, self._ttl, until)
            yield Begin(grant, asked, tick)
            result: Result | None = yield Await(None if at_most is None else asked + at_most)
            if result is None:
                yield Cease(attempt, TOO_LONG)
        except Abandoned:
            yield Cease(attempt, CLOSED)
            yield from _quietly(finish)  # for another node, at once
            self._retire = False
            raise
        error = f"{TOO_LONG}: it took more than {at_most:g} s" if result is None else result.error
        ending: Ending = "failed" if error else "completed"
        yield from self._finish(self._for_next(finish, following, ending, error), attempt)
        if result is None:  # others may go on with the next tick. We do not before this one has ended
            yield Await(None)

    def _calendar(self, row: Row | None) -> Calendar:
        """Return what the next tick goes by: what the row says, unless it is ours to change that.

        The schedule of the node that was started last holds. Those that were started before may still have
        another one, and go by the last one as well. Otherwise two nodes would change it to and fro while a
        new one is rolled out.
        """
        if row is None or self._changing or row.schedule == self.job.calendar.text:
            return self.job.calendar
        try:
            return read(row.schedule)
        except errors.SettingsError as error:
            log().warning("%r goes by a schedule that cannot be read here: %s", self.job.key, error)
            return self.job.calendar

    def _for_next(self, finish: Finish, row: Row, ending: Ending, text: str = "") -> Finish:
        """Have the work offered again when the next run may begin. Also if this one has failed."""
        due = row.tick if row.began is None else max(row.tick, row.began + self.job.at_least)
        retry = 0.0 if ending == "failed" else None
        return replace(finish, ending=ending, text=text, retry=retry, at=due, data=row.dump())

    def _finish(self, finish: Finish, attempt: str = "") -> Plan[None]:
        """End the assignment. As long as it is not known to have ended, its lease is kept."""
        self._retire = False  # what is left of the attempt is this
        try:
            answer: Finished | NotHeld = yield from self._ask(finish)
            if attempt:
                yield Cease(attempt)
        except Abandoned:
            yield from _quietly(finish)
            yield Cease(attempt)
            raise
        self._failures = 0
        self._attempt = ""
        if isinstance(answer, Finished):
            if finish.data is not None:  # it goes by ours now, or by one that we go by as well
                self._compared, self._changing = True, False
        elif answer.why != "already":  # otherwise an answer was lost
            log().warning(
                "the lease of %r had ended before its run had (%s): the tick may be run again",
                self.job.key,
                answer.why,
            )

    def _ask(self, request: Request[A]) -> Plan[A]:
        """Ask until there is an answer."""
        while True:
            try:
                answer: A = yield request
            except Abandoned:
                raise
            except Exception as error:  # noqa: BLE001 - see `_take`
                yield self._trouble(error)
            else:
                return answer

    def _trouble(self, error: Exception) -> Wait:
        """Say what is wrong, and return when to go on."""
        self._failures += 1
        passes = isinstance(error, TRANSIENT)
        if not passes:
            log().error("%r: %s; trying again in %g s", self.job.key, error, TROUBLE)
        elif self._failures == 1:
            log().warning("%r: %s; trying again", self.job.key, error)
        pause = self._settings.backoff.delay(self._failures, self._roll()) if passes else TROUBLE
        return self._wait(self._clock() + pause)

    def _trusted_until(self, asked: float) -> float:
        return asked + self._ttl - self._settings.margin_for(self._ttl)

    def _wait(self, until: float) -> Wait:
        return Wait(self.job.key, self._attempt, until)


def _quietly(request: Request[Any]) -> Plan[None]:
    """Ask once. If that fails too, the lease ends with its ttl."""
    with suppress(errors.StoreError):
        yield request


def _shown(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat()


def _instant(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
