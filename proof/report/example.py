"""A made-up history that looks like a real one: to work on the page, and to test it, without a run.

    python -m proof.report.example page.html

Each key is a story of its own: one turn after the other, with waiters, pauses, walk-aways and deaths. Nobody
checks it; only its shape matters. What the checkers say of it is made up too.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from proof.checkers.order.rules import RULES
from proof.histories.records import (
    BARE,
    FENCED,
    RAISED,
    Ask,
    Audit,
    Call,
    Clock,
    History,
    Injected,
    Run,
    Trust,
    Verdict,
    Violation,
)

BOOT, EPOCH = 5_000.0, 1_763_200_000_000_000
KEYS = {"plain": 8, "shared": 3, "permits": 3, "operation": 3, "fenced": 3, "raised": 3, "bare": 3}
FAULTS = {  # what, at whom, for how long
    "kill client": ("client", 0.1),
    "pause client": ("client", 3.0),
    "fork client": ("client", 0.5),
    "cancel client": ("client", 0.2),
    "client clock jumps": ("client", 4.0),
    "kill lock server": ("lock server", 1.2),
    "pause lock server": ("lock server", 2.5),
    "kill database": ("database", 1.5),
    "pause database": ("database", 2.0),
    "promote standby": ("database", 2.5),
    "database clock steps": ("database", 3.0),
    "cut connections": ("network", 0.3),
    "deaf network": ("network", 2.0),
    "half an answer": ("network", 1.0),
    "answer lost after commit": ("network", 1.5),
    "delays": ("network", 4.0),
    "partition": ("network", 3.0),
    "slow fsync": ("disk", 4.0),
    "full disk": ("disk", 2.0),
}


def example(*, seconds: float = 120.0, rate: float = 1.0, injections: int = 40, seed: int = 7) -> History:
    """Return a history of *seconds*; *rate* 1 is some 170 calls a second."""
    dice = random.Random(seed)
    history = History(
        Run(
            "postgres",
            seed,
            BOOT,
            BOOT + seconds,
            seconds,
            settings={"processes": 8, "ttl": "0.6–1.5 s", "heartbeat": 0.2},
            versions={"holdfast": "0.9.0", "postgres": "15.13", "python": "3.11.2", "system": "6.18.5"},
            replay=f"make proof STORES=postgres SEED={seed} PROOF_SECONDS={seconds:g}",
        )
    )
    history.clocks = [Clock(BOOT + 0.5 * n, store_time(BOOT + 0.5 * n)) for n in range(int(seconds * 2) + 1)]
    history.faults = _faults(dice, seconds, injections)
    for kind, count in KEYS.items():
        for number in range(count):
            _Story(history, f"{kind}:{number}", random.Random(f"{seed} {kind} {number}"), rate).tell(seconds)
    history.calls.sort(key=lambda call: call.called)
    history.asks.sort(key=lambda ask: ask.called)
    history.audit = [
        replace(row, id=number) for number, row in enumerate(sorted(history.audit, key=lambda r: r.at), 1)
    ]
    return history


def verdicts(history: History, *violations: Violation, undecided: int = 0) -> list[Verdict]:
    """Return what checkers could say of it."""
    order = Verdict("order", list(violations), figures={"turns looked at": float(len(history.trusts))})
    order.checked = {rule.name: len(history.calls) // (n + 1) for n, rule in enumerate(RULES)}
    linear = Verdict("linear", undecided=undecided, figures={"longest slice": 212.0, "steps": 1_209_331.0})
    linear.checked = {"linearizable": len(history.asks)}
    return [order, linear]


def store_time(boot: float) -> int:
    """Return what the store's clock says then."""
    return EPOCH + round((boot - BOOT) * 1e6)


def _faults(dice: random.Random, seconds: float, injections: int) -> list[Injected]:
    names, found, pair = list(FAULTS), [], 0
    for number in range(injections):
        at = BOOT + 2 + (seconds - 8) * number / injections
        together = 2 if number % 3 == 2 else 1
        pair += together - 1
        chosen = [names[number % len(names)], *dice.sample(names, together - 1)]
        for name in chosen:
            where, long = FAULTS[name]
            target = f"sync-{dice.randrange(4)}" if where == "client" else where
            began = at + dice.random() * 0.2
            ended = began + long * (0.6 + 0.8 * dice.random())
            excuses = ("belief",) if name == "database clock steps" else ()
            mark = pair if together == 2 else 0
            found.append(Injected(name, target, began, ended, mark, f"for {ended - began:.1f} s", excuses))
    return found


@dataclass
class _Story:
    """What happens to one key."""

    history: History
    key: str
    dice: random.Random
    rate: float
    numbers: int = 0
    stored: list[tuple[float, str]] = field(default_factory=list)
    forgotten: list[tuple[float, float]] = field(default_factory=list)  # stretches that a sleeper wrote over

    def tell(self, seconds: float) -> None:
        now = BOOT + self.dice.random()
        while now < BOOT + seconds - 3:
            now = self._turn(now) + self.dice.expovariate(6.0 * self.rate)
        if self.key.partition(":")[0] in (FENCED, RAISED, BARE):
            self.history.resources[self.key] = [
                value for at, value in self.stored if not any(a < at < b for a, b in self.forgotten)
            ]

    def _turn(self, now: float) -> float:
        """Have somebody take the lock, use it, and lose it or give it back; return when it is free again."""
        dice = self.dice
        asleep = {f.target for f in self._at_work(now, now) if "pause" in f.fault}
        workers = [f"{kind}-{n}" for kind in ("sync", "async", "http") for n in range(4)]
        worker = dice.choice([name for name in workers if name not in asleep])
        who = f"{worker}.{dice.randrange(3)}"
        owner, token, ttl = f"{who}/{now:.4f}", store_time(now), 0.6 + 0.9 * dice.random()
        down = self._down(now)
        waited = dice.expovariate(3.0) if dice.random() < 0.4 else 0.0
        delay = 0.002 * math.exp(dice.gauss(0, 0.6)) + (down - now if down else 0.0)
        if dice.random() < 0.12:
            self._call(who, "try", f"{owner}-no", now, now + delay, "refused", error="LockTimeout: held")
        paused = self._paused(worker, now)
        kind = "try" if not waited and dice.random() < 0.3 else "acquire"
        got = now + delay
        lost = bool(down) and dice.random() < 0.5
        self._ask(worker, owner, now, got, "Granted", token, ttl)
        if waited:
            self._ask(worker, owner, now - waited, now - waited + delay / 2, "Queued", 0, ttl)
        outcome = "unknown" if lost else "ok"
        self._call(
            who, kind, owner, now - waited, got, outcome, token=0 if lost else token, ttl=ttl, wait=2.0
        )
        used = got + dice.expovariate(4.0 * self.rate)
        expired = lost or paused > got + ttl or dice.random() < 0.08
        used = paused if paused > got + ttl else min(used, got + ttl - 0.1)
        over = now + ttl if expired else used
        self._audit(token, owner, now, over, ttl, released=not expired)
        if not lost:
            until = min(over, now + ttl - 0.05)
            self.history.trusts.append(Trust(who, self.key, owner, token, got, until))
            asked = got + 0.05 if used > over else used
            self._update(who, owner, token, asked, used, late=expired and used > over)
        if not expired:
            self._call(who, "release", owner, used + 0.002, used + 0.002 + delay, "ok", token=token)
        elif used > over and not lost:
            self._call(who, "release", owner, used + 0.02, used + 0.02 + delay, "refused", error="LeaseLost")
        return over

    def _update(self, who: str, owner: str, token: int, asked: float, at: float, *, late: bool) -> None:
        kind = self.key.partition(":")[0]
        if kind not in (FENCED, RAISED, BARE):
            return
        value = f"{owner}!"
        refused = late and kind != BARE
        if late and kind == BARE:
            self.forgotten.append((asked, at))  # what came in between is overwritten
        if not refused:
            self.stored.append((at, value))
        error = "LeaseLost: taken over" if refused else ""
        outcome = "refused" if refused else "ok"
        self._call(who, "update", owner, asked, at + 0.003, outcome, token=token, value=value, error=error)

    def _paused(self, worker: str, now: float) -> float:
        ends = (f.ended for f in self._at_work(now, now + 0.5) if f.target == worker and "pause" in f.fault)
        return max(ends, default=0.0)

    def _down(self, now: float) -> float:
        ends = (f.ended for f in self._at_work(now, now) if f.target in ("database", "network"))
        return max(ends, default=0.0)

    def _at_work(self, since: float, until: float) -> list[Injected]:
        return [fault for fault in self.history.faults if fault.began <= until and fault.ended >= since]

    def _call(
        self, who: str, kind: str, owner: str, called: float, returned: float, outcome: str, **more: object
    ) -> None:
        self.numbers += 1
        answered = math.inf if outcome == "unknown" and self.dice.random() < 0.3 else returned
        self.history.calls.append(
            Call(who, self.numbers, kind, self.key, owner, called, answered, outcome, **more)  # type: ignore[arg-type]
        )

    def _ask(
        self, worker: str, owner: str, at: float, back: float, answer: str, token: int, ttl: float
    ) -> None:
        self.numbers += 1
        ask = Ask(
            worker, self.numbers, "Acquire", self.key, owner, owner, at, back, "ok", answer, token, ttl, True
        )
        self.history.asks.append(ask)

    def _audit(
        self, token: int, owner: str, since: float, until: float, ttl: float, *, released: bool
    ) -> None:
        at, end = store_time(since), store_time(until)
        ends = end + 200_000 if released else end
        held = Audit(0, at, "lock", self.key, token, owner, owner, True, ends, at)
        free = Audit(0, end if released else end + 20_000, "lock", self.key, token, "", "", True, end, at)
        self.history.audit += [held, free] if released else [held]


def main() -> None:
    """Write the page."""
    from proof.report import summary, write_report

    history = example()
    said = verdicts(history)
    print(summary(history, said))
    write_report(history, said, Path(sys.argv[1] if len(sys.argv) > 1 else "example.html"))


if __name__ == "__main__":
    main()
