"""Which moments of a run are worth a closer look: a sleeper that is overtaken, an update that is lost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.faults.proof.records import BARE, FENCED, RAISED, Call, History, Injected
from tests.faults.proof.reporting.figures import Figures
from tests.faults.proof.reporting.leases import BootTimes, Lease, Takeover
from tests.faults.proof.reporting.spelling import (
    clipped,
    clock,
    counted,
    duration,
    process_of,
    short,
)
from tests.faults.proof.reporting.words import flowing

LEAST, MOST = 7.0, 14.0  # seconds of a moment with a fault
CLOSE = 3.0  # of one that is about a single lease
WELL_SEEN = 2.5  # seconds
LANES = 6  # keys, at most
PAUSE = re.compile(r"pause|stop|sleep|freez", re.IGNORECASE)


@dataclass(slots=True)
class Moment:
    """A stretch of the run, with the keys to show and who it is about."""

    title: str
    text: list[str]
    since: float
    until: float
    keys: list[str]
    about: set[str] = field(default_factory=set)  # processes, or single threads or tasks of them

    def is_about(self, worker: str) -> bool:
        return worker in self.about or process_of(worker) in self.about


class Moments:
    """Look for them."""

    def __init__(self, history: History, figures: Figures) -> None:
        self.history, self.figures = history, figures
        self.boot = BootTimes(history)
        self.workers = {call.owner: call.worker for call in history.calls}
        self.updates = [call for call in history.calls if call.kind == "update"]

    def found(self) -> list[Moment]:
        """Return the moments to show, the most telling one first."""
        candidates = (self.violation(), self.sleeper(), self.loss())
        return [moment for moment in candidates if moment is not None]

    def who(self, owner: str) -> str:
        return self.workers.get(owner, owner)

    def violation(self) -> Moment | None:
        """Return the surroundings of the first violation that names a token we know."""
        granted = {lease.token: lease for lease in self.figures.leases}
        for violation in self.figures.violations:
            named = [granted[n] for n in map(int, re.findall(r"\d{1,18}", violation.text)) if n in granted]
            if not named or named[0].key != violation.key:
                continue
            times = [self.boot(lease.began) for lease in named if lease.key == violation.key]
            since, until = self._window(min(times), min(max(times), min(times) + MOST / 2), CLOSE)
            text = [clipped(f"«{violation.rule}» was violated on {violation.key}: {violation.text}", 600)]
            about = {self.who(lease.owner) for lease in named}
            return Moment("Where it went wrong first", text, since, until, [violation.key], about)
        return None

    def sleeper(self) -> Moment | None:
        """Return a pause of a client past the end of its leases, and who took over meanwhile."""
        overtaken: defaultdict[str, list[tuple[float, Takeover]]] = defaultdict(list)
        for takeover in self.figures.takeovers:
            process = process_of(self.who(takeover.before.owner))
            overtaken[process].append((self.boot(takeover.after.began), takeover))
        refused: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.updates:
            if call.outcome == "refused" and call.key.partition(":")[0] in (FENCED, RAISED):
                refused[process_of(call.worker)].append(call)
        best: tuple[int, Injected | None, list[Takeover], list[Call]] = (0, None, [], [])
        for fault in self.history.faults:
            if self._excused(*self._window(fault.began, fault.ended)):
                continue
            for process in _named(fault.target, overtaken):
                late = [
                    takeover
                    for at, takeover in overtaken[process]
                    if self._alive(takeover.before, fault.began) and at <= fault.ended + 1.5
                ]
                stale = [c for c in refused[process] if fault.ended - 0.2 <= c.returned <= fault.ended + 2]
                keys = {takeover.before.key for takeover in late}
                stopped = [call for call in stale if call.key in keys]
                asleep = PAUSE.search(fault.fault) is not None
                score = len(late) + 4 * len(stopped) - 2 * (fault.pair != 0) + 20 * asleep
                if late and score > best[0]:
                    best = (score, fault, late, stopped)
        score, fault_found, late, stopped = best
        return self._sleeper(fault_found, late, stopped) if fault_found is not None else self._any_takeover()

    def _sleeper(self, fault: Injected, late: list[Takeover], stopped: list[Call]) -> Moment:
        at = clock(fault.began - self.figures.began)
        long = duration(fault.ended - fault.began)
        if asleep := PAUSE.search(fault.fault) is not None:
            title, what = "A client sleeps past the end of its leases", "was put to sleep for"
        else:
            title, what = "A client loses its leases", f"was struck by «{fault.fault}», for"
        text = [f"At {at}, {fault.target} {what} {long}."]
        keys = [call.key for call in stopped] + [takeover.before.key for takeover in late]
        text.append(next(self._told(takeover) for takeover in late if takeover.before.key == keys[0]))
        if stopped:
            token, error = short(stopped[0].token), clipped(stopped[0].error, 120) or "refused"
            woke = "It woke up with" if asleep else "It came back with"
            text.append(f"{woke} token {token} and went on with its update, as any program would.")
            text.append(f"The fence refused it: {error}.")
        since, until = self._window(fault.began, fault.ended)
        about = {process_of(self.who(takeover.before.owner)) for takeover in late}
        keys += [key for key in self._busy(since, until) if key not in keys]
        return Moment(title, text, since, until, _first(keys), about)

    def _any_takeover(self) -> Moment | None:
        for takeover in self.figures.takeovers:
            at = self.boot(takeover.after.began)
            since, until = self._window(self.boot(takeover.before.began), at, CLOSE)
            if self._excused(since, until):
                continue
            keys = [takeover.after.key, *self._busy(since, until)]
            about = {self.who(takeover.before.owner)}
            return Moment("A takeover", [self._told(takeover)], since, until, _first(keys), about)
        return None

    def _alive(self, lease: Lease, at: float) -> bool:
        return self.boot(lease.began) <= at <= self.boot(lease.expires_at)

    def _told(self, takeover: Takeover) -> str:
        before, after = takeover.before, takeover.after
        later = duration(max(after.began - before.expires_at, 0) / 1e6)
        return (
            f"{self.who(before.owner)} had {before.key} with token {short(before.token)}. "
            f"{later} after the lease had run out, {self.who(after.owner)} had it, "
            f"with the higher token {short(after.token)}."
        )

    def loss(self) -> Moment | None:
        """Return how an update of the control was lost: what somebody wrote who had slept over it."""
        lost = list(self._lost())
        # One that slept long enough to be seen, and not so long that the rest is too small to see.
        for victim, culprit in sorted(
            lost, key=lambda pair: abs(pair[1].returned - pair[1].called - WELL_SEEN)
        ):
            since, until = self._window(min(victim.called, culprit.called), culprit.returned, CLOSE)
            if culprit.returned > until or self._excused(since, until):
                continue
            tokens = f"{short(culprit.token)} against {short(victim.token)}"
            text = f"""{victim.worker} was told that its update of {victim.key} was stored. Then
                {culprit.worker}, with the older token ({tokens}), wrote what it had made of an older state.
                Nobody was told of an error, and the first update is gone. In this run
                {counted(len(lost), "update")} of the control went this way. It is the same program as the
                fenced one, without its fence."""
            about = {culprit.worker}
            return Moment("How the control loses", [flowing(text)], since, until, [victim.key], about)
        return None

    def _lost(self) -> Iterator[tuple[Call, Call]]:
        """Return updates of the control that are gone, each with the next one that has an older token."""
        stored = {key: set(values) for key, values in self.history.resources.items()}
        bare = [c for c in self.updates if c.key.partition(":")[0] == BARE and c.outcome == "ok"]
        bare.sort(key=lambda call: call.returned)
        for place, call in enumerate(bare):
            if call.value in stored.get(call.key, ()):
                continue
            later = (c for c in bare[place + 1 :] if c.key == call.key and c.token < call.token)
            if (culprit := next(later, None)) is not None:
                yield call, culprit

    def _window(self, began: float, ended: float, least: float = LEAST) -> tuple[float, float]:
        """Return a little more than from *began* until *ended*."""
        since = max(began - 0.2 * least, self.figures.began)
        return since, since + min(max(ended - began + 0.5 * least, least), MOST)

    def _excused(self, since: float, until: float) -> bool:
        """Tell whether the store's clock was stepped: its times are not to be drawn beside ours then."""
        return any(one.excuses and one.began < until and one.ended > since for one in self.history.faults)

    def _busy(self, since: float, until: float) -> list[str]:
        """Return keys with takeovers in a stretch, those with most of them first."""
        count: defaultdict[str, int] = defaultdict(int)
        for takeover in self.figures.takeovers:
            if since <= self.boot(takeover.after.began) <= until:
                count[takeover.after.key] += 1
        return sorted(count, key=lambda key: -count[key])


def _first(keys: list[str]) -> list[str]:
    return list(dict.fromkeys(keys))[:LANES]


def _named(target: str, processes: defaultdict[str, list[tuple[float, Takeover]]]) -> list[str]:
    return [name for name in re.split(r"[\s,;]+", target) if name in processes]
