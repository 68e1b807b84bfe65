"""Histories to try the checker on: a small world in which one thing happens after the other, as it should.

What a test wants to be false is changed afterwards.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from proof.checkers.order.requests import WAITING, micros
from proof.checkers.order.tables import CLAIM, PATIENCE, Tables
from proof.histories.records import Ask, Call, Clock, History, Run, Trust

BEGAN = 5000.0  # boot time
EPOCH = 1_700_000_000.0  # the store's clock then
MARGIN = 0.03
STEP = 0.001  # seconds from asking to the store, and from there to the answer


class Turn:
    """One attempt of a turn, from its call to the end of its trust."""

    def __init__(self, story: Story, call: int, attempt: str, terms: str) -> None:
        self._story = story
        self.number = call  # its place among the calls
        self.attempt = attempt
        self.terms = terms
        self.answer = ""
        self.since = self.trusted_until = 0.0

    @property
    def call(self) -> Call:
        return self._story.history.calls[self.number]

    @property
    def token(self) -> int:
        return self.call.token

    def ask(self, *, lost: bool = False) -> str:
        """Ask for the lock, or for the lock again; the call returns when it is granted."""
        story, call = self._story, self.call
        ttl = micros(call.ttl)
        asked = story.boot
        with_answer = story.ask(
            "Acquire",
            call.key,
            self.attempt,
            owner=call.owner,
            ttl=call.ttl,
            patience=PATIENCE,
            wait=call.wait > 0,
        )
        self.answer, token = story.tables.acquire(call, self.attempt, ttl, self.terms)
        with_answer(self.answer, lost=lost, token=token)
        if self.answer == "Granted" and not lost:
            self.since, self.trusted_until = story.boot, asked + call.ttl - MARGIN
            story.returns(self.number, "ok", token=token, trusted_until=self.trusted_until)
        elif self.answer == "Busy":
            story.returns(self.number, "refused", error="LockTimeout")
        return self.answer

    def enter(self) -> None:
        """Enter by the hand-over, trusting it since the last answer that we wait."""
        story, call = self._story, self.call
        asks = story.history.asks
        asked = max(ask.called for ask in asks if ask.attempt == self.attempt and ask.answer in WAITING)
        token = story.tables.locks[call.key].holds[self.attempt].token
        fields = {"owner": call.owner, "ttl": CLAIM, "token": token}
        story.ask("Enter", call.key, self.attempt, **fields)("Granted")
        asks[-1] = replace(asks[-1], called=asked)
        self.since, self.trusted_until = story.boot, asked + CLAIM - MARGIN
        story.returns(self.number, "ok", token=token, trusted_until=self.trusted_until)

    def renew(self) -> None:
        story, call = self._story, self.call
        asked = story.boot
        with_answer = story.ask("Renew", call.key, self.attempt, token=call.token, ttl=call.ttl)
        if story.tables.renew(call.key, self.attempt, micros(call.ttl)):
            self.trusted_until = asked + call.ttl - MARGIN
            with_answer("renewed", token=call.token)
        else:
            with_answer("lost", token=call.token)

    def refresh(self, *, settles: bool = True) -> None:
        """Keep the ticket alive, and have the store look who is next."""
        story, key = self._story, self.call.key
        with_answer = story.ask("Refresh", key, self.attempt, patience=PATIENCE)
        if settles:
            story.tables.settle(key)
        held = self.attempt in story.tables.locks[key].holds
        waits = story.tables.refresh(key, self.attempt)
        with_answer("handed" if held else "waiting" if waits else "gone")

    def release(self, *, lost: bool = False) -> None:
        story, call = self._story, self.call
        self.trust(min(story.boot, self.trusted_until))
        number = story.call("release", call.key, call.owner, token=call.token)
        with_answer = story.ask("Release", call.key, self.attempt, token=call.token)
        done = story.tables.remove(call.key, self.attempt)
        with_answer("Released" if done else "NotHeld", lost=lost, token=call.token)
        if not lost:
            story.returns(number, "ok" if done else "refused")

    def walk_away(self) -> None:
        """Leave it to its end."""
        self.trust(self.trusted_until)

    def trust(self, until: float) -> None:
        call = self.call
        trust = Trust(call.worker, call.key, call.owner, call.token, self.since, until)
        self._story.history.trusts.append(trust)

    def withdraw(self) -> None:
        """Give up waiting."""
        with_answer = self._story.ask("Withdraw", self.call.key, self.attempt)
        self._story.tables.remove(self.call.key, self.attempt)
        with_answer("Withdrawn")
        self._story.returns(self.number, "refused", error="LockTimeout")

    def update(self, value: str, outcome: str = "ok", *, done: bool = True) -> None:
        """Update the resource of the key."""
        story, call = self._story, self.call
        number = story.call("update", call.key, call.owner, token=call.token, value=value)
        if done:
            story.history.resources.setdefault(call.key, []).append(value)
        if outcome != "unknown":
            story.returns(number, outcome)


class Story:
    """A history in the making."""

    def __init__(self, store: str = "postgres") -> None:
        settings = {"heartbeat": 0.2, "claim": CLAIM, "patience": PATIENCE}
        self.history = History(Run(store, 1, BEGAN, settings=settings))
        self.boot = BEGAN
        self.tables = Tables(self.history.audit, lambda: self.now)
        self._attempts = 0
        self.look()

    @property
    def now(self) -> int:
        """The store's clock."""
        return micros(self.boot - BEGAN + EPOCH)

    def look(self) -> None:
        self.history.clocks.append(Clock(self.boot, self.now))

    def wait(self, seconds: float) -> None:
        self.boot = round(self.boot + seconds, 6)

    # What programs do.

    def take(self, key: str, owner: str, *, lost: bool = False, **fields: Any) -> Turn:
        """Ask for a lock, and wait for it if need be."""
        terms = fields.pop("terms", None)
        self._attempts += 1
        wanted = {"mode": (terms or {}).get("mode", "exclusive"), "take": (terms or {}).get("take", 1)}
        fields = {"ttl": 1.0, "wait": 2.0, **wanted, **fields}
        number = self.call(fields.pop("kind", "acquire"), key, owner, **fields)
        turn = Turn(self, number, f"attempt-{self._attempts}", json.dumps(terms) if terms else "")
        turn.ask(lost=lost)
        return turn

    def call(self, kind: str, key: str, owner: str, **fields: Any) -> int:
        """Note a call; return its place."""
        worker = f"{owner.partition('/')[0]}.0"
        calls = self.history.calls
        calls.append(Call(worker, len(calls) + 1, kind, key, owner, self.boot, **fields))
        return len(calls) - 1

    def returns(self, number: int, outcome: Any, **fields: Any) -> None:
        calls = self.history.calls
        calls[number] = replace(calls[number], returned=self.boot, outcome=outcome, **fields)

    def ask(self, kind: str, key: str, attempt: str, **fields: Any) -> Any:
        """Send a request to the store; return what to call with its answer."""
        asks, called, place = self.history.asks, self.boot, len(self.history.asks)
        asks.append(Ask("client", place, kind, key, attempt, fields.pop("owner", ""), called, **fields))
        self.wait(STEP)

        def answered(answer: str, *, lost: bool = False, **more: Any) -> None:
            self.wait(STEP)
            if not lost:
                asks[place] = replace(
                    asks[place], returned=self.boot, outcome="ok", answer=answer, **{**fields, **more}
                )

        return answered
