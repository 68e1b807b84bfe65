"""Writes down what a process asks and is told, as it happens: see `records` for what a line is.

A line is one write to a file that is only ever added to, so a process that is killed leaves whole lines, and
at the end a question that has no answer. Nothing here waits for a mutex: threads and tasks share a recorder,
and a fork may happen at any moment. The child gets a file and a name of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import StoreUnavailable
from holdfast.clock import boot_time
from holdfast.core.family import PLAIN
from holdfast.core.plans import Grant
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Downgrade,
    Granted,
    NotHeld,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Withdraw,
)
from holdfast.core.settings import Settings
from proof.histories.records import CALLS, Outcome

_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class WouldWait(StoreUnavailable):
    """A request that could not be answered at once."""


class Recorder:
    """The lines of one process, *name*, in the folder of a run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._calls, self._asks, self._trusts = itertools.count(1), itertools.count(1), itertools.count(1)
        self._forks = itertools.count(1)
        self._open(name)
        _recorders.add(self)

    def _open(self, name: str) -> None:
        self.name = name
        path = self.folder / CALLS / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._grants: dict[str, int] = {}  # owner → requests that were granted, or may have been
        self._releases: dict[str, Outcome] = {}  # attempt → what the store's answers say of its release

    def _write(self, what: str, number: int, fields: dict[str, Any]) -> None:
        os.write(self._file, (_ENCODE([what, number, fields]) + "\n").encode())

    def before_fork(self) -> None:
        """Choose the name that the child will have: here, where two forks cannot choose the same."""
        self._next = f"{self.name}-fork{next(self._forks)}"

    def after_fork(self) -> None:
        """Become the recorder of a forked child, which must not add to its parent's file."""
        os.close(self._file)
        self._open(self._next)

    # What a program asks of the library.

    def asked(self, **fields: Any) -> int:
        """Note a call that is about to be made; return its number."""
        number = next(self._calls)
        self._write("call", number, fields | {"called": boot_time()})
        return number

    def named(self, number: int, owner: str) -> None:
        """Note whose a call is, if that was found out after it was made."""
        self._write("call", number, {"owner": owner})

    def told(self, number: int, outcome: Outcome, **fields: Any) -> None:
        """Note what became of a call. One of which that is unknown has not returned."""
        if outcome != "unknown":
            fields["returned"] = boot_time()
        self._write("call", number, fields | {"outcome": outcome})

    def trusted(self, *, key: str, owner: str, token: int, since: float, until: float) -> None:
        """Note for how long a turn was trusted, now that it is over."""
        fields = {
            "worker": self.name,
            "key": key,
            "owner": owner,
            "token": token,
            "since": since,
            "until": until,
        }
        self._write("trust", next(self._trusts), fields)

    def grants(self, owner: str) -> int:
        """Tell how many requests of an owner were granted, or may have been.

        Whoever is told that it was not to be had may have had it for a while: its answers were lost, or came
        too late. The difference between before and after tells.
        """
        return self._grants.get(owner, 0)

    def release_of(self, attempt: str) -> Outcome:
        """Tell whether the store has released it: who asked is only told that the lease is lost."""
        return self._releases.get(attempt, "refused")

    def forget(self, owner: str, attempts: list[str]) -> None:
        """Forget what was kept of a turn that is over."""
        self._grants.pop(owner, None)
        for attempt in attempts:
            self._releases.pop(attempt, None)

    # What a client asks of its store.

    def watch(self, client: Any) -> None:
        """Note every request of *client*, by standing before its store; and what it enters without one."""
        engine = client._engine
        execute: Callable[[Request[Any]], Any] = engine.store.execute
        keep: Callable[[Grant, Any], Any] = engine.keep

        def recorded(request: Request[Any]) -> Any:
            fields = _fields_of(request)
            return self._record(execute, request, fields) if fields else execute(request)

        def kept(grant: Grant, wish: Any) -> Any:
            if grant.lasts:
                self._enter(grant, engine.settings)
            return keep(grant, wish)

        engine.store.execute, engine.keep = recorded, kept
        if engine.store.traits.at_once:
            self._watch_at_once(engine.store)
        if engine.store.traits.together:
            self._watch_together(engine.store)

    def _watch_at_once(self, store: Any) -> None:
        """Note what is answered at once; what is not was certainly not applied."""
        execute = store.execute_at_once

        def answered(request: Request[Any]) -> Any:
            answer = execute(request)
            if answer is None:
                raise WouldWait
            return answer

        def recorded(request: Request[Any]) -> Any:
            with suppress(WouldWait):
                fields = _fields_of(request)
                return self._record(answered, request, fields) if fields else execute(request)
            return None

        store.execute_at_once = recorded

    def _watch_together(self, store: Any) -> None:
        """Note what is asked together; where there is no answer, nothing was applied."""
        ask = store.try_together

        def recorded(requests: Sequence[Request[Any]]) -> list[Any]:
            noted = [(request, self._ask(_fields_of(request))) for request in requests]
            try:
                answers: list[Any] = ask(requests)
            except BaseException as error:
                for request, numbers in noted:
                    self._fail(request, numbers, error)
                raise
            for (request, numbers), answer in zip(noted, answers, strict=True):
                if answer is None or isinstance(answer, BaseException):
                    self._fail(request, numbers, answer or WouldWait())
                else:
                    self._tell(request, numbers, answer)
            return answers

        store.try_together = recorded

    def _enter(self, grant: Grant, settings: Settings) -> None:
        """Note that a winner has entered by the hand-over, before its keeper knows of the lease."""
        self._granted(grant.owner)
        fields = {
            "worker": self.name,
            "kind": "Enter",
            "key": grant.key,
            "attempt": grant.attempt,
            "owner": grant.owner,
            "ttl": grant.lasts,
            "plain": grant.terms == PLAIN,
            "called": grant.trusted_until - grant.lasts + settings.margin_for(grant.lasts),
            "returned": boot_time(),
            "outcome": "ok",
            "answer": "Granted",
            "token": grant.token,
            "holds": 1,
        }
        self._write("ask", next(self._asks), fields)

    def _record(
        self, execute: Callable[[Request[Any]], Any], request: Request[Any], asks: list[dict[str, Any]]
    ) -> Any:
        numbers = self._ask(asks)
        try:
            answer = execute(request)
        except BaseException as error:
            self._fail(request, numbers, error)
            raise
        self._tell(request, numbers, answer)
        return answer

    def _ask(self, asks: list[dict[str, Any]]) -> list[int]:
        numbers = [next(self._asks) for _ in asks]
        called = boot_time()
        for number, fields in zip(numbers, asks, strict=True):
            self._write("ask", number, {"worker": self.name, **fields, "called": called})
        return numbers

    def _fail(self, request: Request[Any], numbers: list[int], error: BaseException) -> None:
        outcome: Outcome = "refused" if isinstance(error, StoreUnavailable) else "unknown"
        said: dict[str, Any] = {"outcome": outcome, "why": text_of(error)}
        if outcome == "refused":  # else it may still happen: a statement can be late
            said["returned"] = boot_time()
        self._learn(request, None, outcome)
        for number in numbers:
            self._write("ask", number, said)

    def _tell(self, request: Request[Any], numbers: list[int], answer: Any) -> None:
        returned = boot_time()
        self._learn(request, answer, "ok")
        for number, fields in zip(numbers, _answers_of(answer), strict=True):
            self._write("ask", number, {"returned": returned, "outcome": "ok", **fields})

    def _learn(self, request: Request[Any], answer: Any, outcome: Outcome) -> None:
        if isinstance(request, Acquire) and (outcome == "unknown" or isinstance(answer, Granted)):
            self._granted(request.owner)
        elif isinstance(request, Release):
            if isinstance(answer, Released):
                self._releases[request.attempt] = "ok"
            elif outcome == "unknown":
                self._releases.setdefault(request.attempt, "unknown")

    def _granted(self, owner: str) -> None:
        self._grants[owner] = self._grants.get(owner, 0) + 1


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _before_fork() -> None:
    for recorder in list(_recorders):
        recorder.before_fork()


def _after_fork() -> None:
    for recorder in list(_recorders):
        recorder.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _fields_of(request: Request[Any]) -> list[dict[str, Any]]:
    """Return what is noted of a request: nothing of one that only looks, and many of a batch."""
    if isinstance(request, Acquire):
        return [
            {
                "kind": "Acquire",
                "key": request.key,
                "attempt": request.attempt,
                "owner": request.owner,
                "ttl": request.ttl,
                "wait": request.wait,
                "plain": request.terms == PLAIN,
                "patience": request.patience,
            }
        ]
    if isinstance(request, Renew):
        leases = [
            {"kind": "Renew", "key": r.key, "attempt": r.attempt, "owner": "", "token": r.token, "ttl": r.ttl}
            for r in request.leases
        ]
        tickets = [
            {"kind": "Refresh", "key": r.key, "attempt": r.attempt, "owner": "", "patience": r.patience}
            for r in request.tickets
        ]
        return leases + tickets
    if isinstance(request, Release | Downgrade):
        kind = type(request).__name__
        names = {"kind": kind, "key": request.key, "attempt": request.attempt, "owner": ""}
        return [{**names, "token": request.token}]
    if isinstance(request, Withdraw):
        return [{"kind": "Withdraw", "key": request.key, "attempt": request.attempt, "owner": ""}]
    if isinstance(request, Break):
        names = {"kind": "Break", "key": request.key, "attempt": "", "owner": ""}
        return [{**names, "token": request.token or 0}]
    return []


def text_of(error: BaseException) -> str:
    """Return what an error is noted as."""
    return f"{type(error).__name__}: {error}"[:200]


def _answers_of(answer: Any) -> list[dict[str, Any]]:
    """Return what is noted of an answer, one for each that `_fields_of` has noted."""
    if isinstance(answer, Renewed):
        leases = [{"answer": a.outcome, "why": a.why or ""} for a in answer.leases]
        return leases + [{"answer": a.outcome} for a in answer.tickets]
    fields: dict[str, Any] = {"answer": type(answer).__name__}
    if isinstance(answer, Granted):
        fields |= {"token": answer.token, "holds": answer.holds}
    elif isinstance(answer, Released):
        fields["holds"] = answer.holds
    elif isinstance(answer, NotHeld | Refused):
        fields["why"] = answer.why
    elif isinstance(answer, Broken):
        fields["token"] = answer.holder.token
    return [fields]
