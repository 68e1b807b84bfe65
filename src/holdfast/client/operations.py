"""Operations: many want the same expensive thing done, one does it, and all learn what came of it.

The part that is the same for threads and tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic

from holdfast.client.engine import Engine
from holdfast.client.leases import BaseLease, L, holding_of
from holdfast.client.options import WaitOptions, Wish, check_options, lasting
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.cluster import LARGEST_DATA
from holdfast.core.family import LARGEST_ERROR, LARGEST_RESULT, Failure, Outcome
from holdfast.core.requests import Done
from holdfast.core.settings import Seconds, seconds
from holdfast.errors import NotHeld, SettingsError


class Undertaking:
    """One operation that somebody wants done: what was asked for, and how far it has come."""

    def __init__(
        self,
        engine: Engine,
        key: str,
        exclusive: bool,
        max_attempts: int | None,
        keep: Seconds,
        options: WaitOptions,
        seen: int = 0,
    ) -> None:
        check_options(options, WaitOptions)
        self.engine = engine
        self.key = keys.validate(key)
        self.companion_key = companion_of(self.key) if exclusive else None
        self.keep = lasting(keep, "keep")
        self.seen = seen  # the token of a result that is kept and was not what is wanted
        self.lease: Any = None  # while it is ours to do
        self.text = "null"  # the result: what we pass on, or what was passed on to us
        self.failed: str | None = None
        self.entered = False
        self._most = max_attempts
        self._options = options
        self._left = countdown(options)

    def again(self) -> Undertaking:
        """Return the same for another block, with what is left of the time."""
        exclusive = self.companion_key is not None
        return Undertaking(self.engine, self.key, exclusive, self._most, self.keep, self._left(), self.seen)

    def wish(self) -> Wish:
        """Check and remember what is asked for; for one block."""
        if self.entered:
            raise SettingsError(f"this operation {self.key!r} was entered before; make a new one")
        self.entered = True
        return self.engine.wish(
            self.key, operation=True, max_attempts=self._most, seen=self.seen, **self._options
        )

    def for_companion(self) -> WaitOptions:
        """Return how to take the lock of the resource, which other operations want when we are done."""
        return {**self._left(), "at_least": 0}

    def take(self, got: BaseLease | Done) -> None:
        """Take in that it is ours to do, or what came of it."""
        if isinstance(got, Done):
            self.text, self.seen = got.result, got.token
        else:
            self.lease = got

    def succeed(self, result: Any) -> None:
        """Note what to pass on."""
        self.check_ours()
        self.text, self.failed = as_text(self.key, result), None

    def pass_on(self, result: Any) -> SettingsError | None:
        """Succeed, with null if the result cannot be passed on; return why it cannot."""
        try:
            self.succeed(result)
        except SettingsError as error:
            self.succeed(None)
            return error
        return None

    def conclude(self, error: BaseException | None) -> None:
        """Have the lease tell how it ended. It counts if no other block of the same owner is left."""
        failure = as_failure(error) if error is not None else self.failed
        outcome = Outcome(True, self.text, self.keep) if failure is None else Outcome(False, failure)
        holding_of(self.lease).outcome = outcome

    def check_entered(self) -> None:
        """Raise if nobody has asked for it yet."""
        if not self.entered:
            raise SettingsError(f"enter the operation {self.key!r} first: with locks.operation(…) as it:")

    def check_ours(self) -> None:
        """Raise if it is not ours to do."""
        self.check_entered()
        if self.lease is None:
            raise NotHeld(self.key, "it was done by somebody else")


class BaseOperation(Generic[L]):
    """An operation as far as it is the same for threads and tasks."""

    def __init__(self, engine: Engine, undertaking: Undertaking) -> None:
        self._engine = engine
        self._it = undertaking
        self.key = undertaking.key

    @property
    def todo(self) -> bool:
        """Whether it is ours to do; else it was done by somebody else, and `result` is theirs."""
        self._it.check_entered()
        return self._it.lease is not None

    @property
    def result(self) -> Any:
        """What the one who did it passed on: JSON values."""
        self._it.check_entered()
        return json.loads(self._it.text)

    @property
    def lease(self) -> L:
        """What we hold while we do it."""
        self._it.check_ours()
        return self._it.lease  # type: ignore[no-any-return]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Who tried before us, and what went wrong, oldest first."""
        lease: BaseLease | None = self._it.lease
        return () if lease is None else lease.failures

    def succeed(self, result: Any = None) -> None:
        """Say what to pass on to everybody who waits, when the block is left. At most 64 KiB of JSON."""
        self._it.succeed(result)

    def fail(self, error: object) -> None:
        """Say that it did not work: the next who waits will be asked to do it, and told why."""
        self._it.check_ours()
        self._it.failed = as_failure(error)

    def __repr__(self) -> str:
        if not self._it.entered:
            state = "not entered"
        else:
            state = "done" if self._it.lease is None else f"to do, {self._it.lease!r}"
        return f"<{type(self).__name__} {self.key!r} {state}>"


def companion_of(key: str) -> str:
    """Return the lock that all exclusive operations on one resource share. No operation has such a name."""
    return keys.validate(f"operation::{key.partition(':')[2] or key}")


def as_text(
    key: str, value: object, what: str = "result", *, largest: int = LARGEST_RESULT, use: str = "passed on"
) -> str:
    """Return the result of an operation as it is passed on, or another value as it is kept."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except Exception as error:  # values of the user's own types may raise anything
        raise SettingsError(
            f"the {what} of {key!r} is no JSON ({error}): pass on where it is, not what it is"
        ) from error
    if len(text) > largest:
        raise SettingsError(
            f"the {what} of {key!r} has {len(text)} bytes as JSON, and {largest} can be {use}:"
            " pass on where it is, not what it is"
        )
    return text


def as_json(key: str, value: object, what: str) -> str:
    """Return the data or the result of some work as it is kept."""
    return as_text(key, value, what, largest=LARGEST_DATA, use="kept")


def as_failure(error: object) -> str:
    """Return what went wrong as it is passed on."""
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    else:
        text = str(error)
    # No store has to know lone surrogates and NUL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")[:LARGEST_ERROR]


def countdown(options: WaitOptions) -> Callable[[], WaitOptions]:
    """Return what returns *options* with as much of their timeout as is left then, counted from now."""
    timeout = options.get("timeout")
    until = None if timeout is None else boot_time() + seconds(timeout, "timeout")

    def left() -> WaitOptions:
        return options if until is None else {**options, "timeout": max(until - boot_time(), 0.0)}

    return left
