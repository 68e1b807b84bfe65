"""Operations: many want the same expensive thing done, one does it, and all learn what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.family import LARGEST_ERROR, LARGEST_RESULT, Failure, Outcome
from holdfast.core.requests import Done
from holdfast.core.settings import Seconds, seconds
from holdfast.options import WaitOptions, lasting
from holdfast.ownership import owner
from holdfast.sync_leases import Hold, Lease

if TYPE_CHECKING:
    from holdfast.client import BaseClient, Wish
    from holdfast.leases import BaseLease
    from holdfast.sync import Holdfast

T = TypeVar("T")


class BaseOperation:
    """An operation as far as it is the same for threads and tasks."""

    def __init__(
        self,
        client: BaseClient,
        key: str,
        *,
        exclusive: bool,
        max_attempts: int | None,
        keep: Seconds,
        options: WaitOptions,
        seen: int = 0,
    ) -> None:
        self.key = keys.validate(key)
        self._client = client
        self._companion_key = companion_of(self.key) if exclusive else None
        self._max_attempts = max_attempts
        self._keep = lasting(keep, "keep")
        self._seen = seen  # the token of a result that is kept and was not what is wanted
        self._options = options
        self._left = countdown(options)
        self._lease: BaseLease | None = None
        self._result = self._text = "null"
        self._failed: str | None = None
        self._entered = False

    @property
    def todo(self) -> bool:
        """Whether it is ours to do; else it was done by somebody else, and `result` is theirs."""
        self._check_entered()
        return self._lease is not None

    @property
    def result(self) -> Any:
        """What the one who did it passed on: JSON values."""
        self._check_entered()
        return json.loads(self._result if self._lease is None else self._text)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Who tried before us, and what went wrong, oldest first."""
        return () if self._lease is None else self._lease.failures

    def succeed(self, result: Any = None) -> None:
        """Say what to pass on to everybody who waits, when the block is left. At most 64 KiB of JSON."""
        self._check_ours()
        self._text, self._failed = as_text(self.key, result), None

    def fail(self, error: object) -> None:
        """Say that it did not work: the next who waits will be asked to do it, and told why."""
        self._check_ours()
        self._failed = as_failure(error)

    def __repr__(self) -> str:
        if not self._entered:
            state = "not entered"
        else:
            state = "done" if self._lease is None else f"to do, {self._lease!r}"
        return f"<{type(self).__name__} {self.key!r} {state}>"

    def _wish(self) -> Wish:
        """Check and remember what is asked for; for one block."""
        if self._entered:
            raise errors.SettingsError(f"this operation {self.key!r} was entered before; make a new one")
        self._entered = True
        return self._client._wish(  # noqa: SLF001
            self.key,
            operation=True,
            max_attempts=self._max_attempts,
            seen=self._seen,
            **self._options,
        )

    def _for_companion(self) -> WaitOptions:
        """Return how to take the lock of the resource, which other operations want when we are done."""
        return {**self._left(), "at_least": 0}

    def _take(self, got: BaseLease | Done) -> None:
        if isinstance(got, Done):
            self._result, self._seen = got.result, got.token
        else:
            self._lease = got

    def _pass_on(self, result: Any) -> errors.SettingsError | None:
        """Succeed, with null if the result cannot be passed on; return why it cannot."""
        try:
            self.succeed(result)
        except errors.SettingsError as error:
            self.succeed(None)
            return error
        return None

    def _conclude(self, error: BaseException | None) -> None:
        """Have the lease tell how it ended. It counts if no other block of the same owner is left."""
        assert self._lease is not None
        failure = as_failure(error) if error is not None else self._failed
        outcome = Outcome(True, self._text, self._keep) if failure is None else Outcome(False, failure)
        self._lease._outcome = outcome  # noqa: SLF001

    def _check_entered(self) -> None:
        if not self._entered:
            raise errors.SettingsError(
                f"enter the operation {self.key!r} first: with locks.operation(…) as it:"
            )

    def _check_ours(self) -> None:
        self._check_entered()
        if self._lease is None:
            raise errors.NotHeld(self.key, "it was done by somebody else")


class Operation(BaseOperation):
    """What `Holdfast.operation` returns: `todo` tells whether it is ours to do.

    Leaving the block normally means that it is done; leaving it with an exception, that it failed.
    """

    _client: Holdfast
    _lease: Lease | None
    _companion: Hold | None = None

    @property
    def lease(self) -> Lease:
        """What we hold while we do it."""
        self._check_ours()
        assert self._lease is not None
        return self._lease

    def __enter__(self) -> Operation:
        wish = self._wish()
        try:
            try:
                self._take(self._client._obtain(wish))  # noqa: SLF001
                if self._lease is not None:
                    self._lease._enter_block()  # noqa: SLF001
                if self._lease is not None and self._companion_key is not None:
                    # Before it is entered: an interrupt may hit right after that.
                    self._companion = self._client.hold(self._companion_key, **self._for_companion())
                    with owner(self._lease.owner):
                        self._companion.__enter__()
                    self._lease.check()  # it may have been lost while we waited
                return self
            except errors.HoldfastError as problem:
                if self._lease is not None:
                    self._leave(problem)
                raise
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            if self._lease is None:
                self._client._forget(self.key, wish.request.attempt, wish.request.lasts)  # noqa: SLF001
            self._forget()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._lease is not None:
                self._leave(error)
        except errors.HoldfastError:
            raise
        except BaseException:
            self._forget()
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Tell the outcome; then let in the others on this resource, who shall find it told."""
        assert self._lease is not None
        self._conclude(error)
        try:
            self._lease.__exit__(type(error) if error else None, error, None)
        except errors.HoldfastError as problem:
            self._leave_companion(problem)
            raise
        self._leave_companion(error)

    def _leave_companion(self, error: BaseException | None) -> None:
        if self._companion is not None:
            self._companion.__exit__(type(error) if error else None, error, None)

    def _forget(self) -> None:
        """Give everything back without a word, after an interrupt."""
        try:
            if self._lease is not None:
                self._lease._forget()  # noqa: SLF001
        finally:
            if self._companion is not None:
                self._companion._forget()  # noqa: SLF001


def run_once(
    operation: Callable[[int], Operation], do: Callable[[], T], ready: Callable[[], Any] | None
) -> T | Any:
    """Do something unless it is there already or somebody else does it; see `Holdfast.run_once`."""
    seen = 0
    while ready is None or not ready():
        with operation(seen) as mine:
            if mine.todo:
                # Somebody may have finished it between our look and our grant.
                if ready is not None and ready():
                    mine._keep = 0.0  # noqa: SLF001 - there is no result
                    return None
                result = do()
                problem = mine._pass_on(result)  # noqa: SLF001
        if mine.todo:
            if problem is not None:  # it is done all the same, and nobody is to do it again
                raise problem
            return result
        if ready is None or ready():
            return mine.result
        seen = mine._seen  # noqa: SLF001 - it was done, and is not there any more: that result is of no use
    return None


def companion_of(key: str) -> str:
    """Return the lock that all exclusive operations on one resource share. No operation has such a name."""
    return keys.validate(f"operation::{key.partition(':')[2] or key}")


def as_text(key: str, result: Any) -> str:
    """Return the result of an operation as it is passed on."""
    try:
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
    except Exception as error:  # values of the user's own types may raise anything
        raise errors.SettingsError(
            f"the result of {key!r} is no JSON ({error}): pass on where it is, not what it is"
        ) from error
    if len(text) > LARGEST_RESULT:
        raise errors.SettingsError(
            f"the result of {key!r} has {len(text)} bytes as JSON, and {LARGEST_RESULT} can be passed on:"
            " pass on where it is, not what it is"
        )
    return text


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
