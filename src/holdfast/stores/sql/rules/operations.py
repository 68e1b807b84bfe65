"""How operations end: everybody who waits is told the result, or the next one tries, or all give up."""

from __future__ import annotations

import json

from holdfast.core.data import as_dict, replace
from holdfast.core.family import LARGEST_ERROR, MOST_FAILURES, Failure, KeptResult, Outcome
from holdfast.core.requests import Signal
from holdfast.stores.base import REMEMBER, micros
from holdfast.stores.sql.rules.holds import Hold
from holdfast.stores.sql.rules.lock import LockRow


def begin(lock: LockRow) -> None:
    """Begin again: who was waiting when the last attempt failed has left since."""
    _forget_failures(lock)


def succeed(lock: LockRow, hold: Hold, outcome: Outcome) -> int:
    """Tell everybody who waits that it is done, and maybe who comes later; return how many wait."""
    lock.record("completed", owner=hold.owner, token=hold.token, operation=True)
    _forget_failures(lock)
    live = lock.tickets.count_live()
    until_at = lock.now + REMEMBER["done"]
    if outcome.keep:
        until = lock.now + micros(outcome.keep)
        until_at = max(until_at, until)
        lock.keep(KeptResult(hold.token, until, hold.owner, hold.host, hold.pid, hold.granted_at))
    if live or outcome.keep:
        lock.write_outcome(hold.token, succeeded=True, text=outcome.text, until_at=until_at)
    _tell_all(lock, live, "done", hold.token)
    return sum(live.values())


def fail(lock: LockRow, hold: Hold, error: str) -> int:
    """Note that an attempt has failed, and maybe that it was the last; return how many are told that."""
    error = error[:LARGEST_ERROR]
    lock.record("failed", owner=hold.owner, token=hold.token, operation=True, reason=error)
    failed = lock.notes.failed + 1
    failure = Failure(hold.owner, hold.host, hold.pid, hold.token, error)
    failures = (*lock.notes.failures, failure)[-MOST_FAILURES:]
    live = lock.tickets.count_live()
    if live and not 0 < hold.terms.max_attempts <= failed:
        lock.notes = replace(lock.notes, failed=failed, failures=failures)
        return 0
    _forget_failures(lock)  # the next one begins again
    if live:
        until_at = lock.now + REMEMBER["failed"]
        text = json.dumps(as_dict(failures))
        lock.write_outcome(hold.token, succeeded=False, text=text, until_at=until_at)
    _tell_all(lock, live, "failed", hold.token)
    return sum(live.values())


def _tell_all(lock: LockRow, live: dict[str, int], why: str, token: int) -> None:
    """End all tickets, with the outcome of this token for those that are alive."""
    if not live:
        return
    has_mine = lock.tickets.mine is not None
    lock.tickets.end_all(why, str(token))
    if has_mine:
        lock.ended.read_again()
    for instance in live:
        lock.signal(instance, Signal("over", lock.key, ""))


def _forget_failures(lock: LockRow) -> None:
    if lock.notes.failed:
        lock.notes = replace(lock.notes, failed=0, failures=())
