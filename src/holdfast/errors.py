"""Every exception that holdfast raises: one tree, with fields and not only text.

`HoldfastError` is the root. `CODES` gives each class its exit code for the command line and its
status for HTTP, in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.family import Failure, Link
    from holdfast.core.requests import Holder

__all__ = [
    "AccessDenied",
    "AtCapacity",
    "CapacityMismatch",
    "Closed",
    "DeadlockDetected",
    "HoldfastError",
    "InstanceLost",
    "InvalidKey",
    "LeaseLost",
    "LimitExceeded",
    "LockTimeout",
    "NotAuthenticated",
    "NotHeld",
    "OperationFailed",
    "OutcomeUnknown",
    "ReentryLimit",
    "RequestRefused",
    "SchemaMismatch",
    "SettingsError",
    "StoreCorrupt",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "TooManyRequests",
    "UpgradeRefused",
    "WorkEnded",
]


class HoldfastError(Exception):
    """The root of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process boundaries; by default only ``args`` would, without the fields.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[HoldfastError], args: tuple[Any, ...], fields: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class LockTimeout(HoldfastError, TimeoutError):
    """The lock was not free in time. Says who has it and what our place was."""

    def __init__(
        self,
        key: str,
        *,
        waited: float,
        holder: Holder | None = None,
        expires_in: float | None = None,
        position: int | None = None,
    ) -> None:
        self.key, self.waited = key, waited
        self.holder, self.expires_in, self.position = holder, expires_in, position
        super().__init__(self._explain())

    def _explain(self) -> str:
        after = f"gave up after {self.waited:.1f} s" if self.waited else "not waiting"
        if self.holder is None:
            return f"{self.key!r} was not granted ({after})"
        text = f"{self.key!r} is held by {self.holder}"
        if self.holder.gone:
            opens = f" for another {max(self.expires_in, 0):.1f} s" if self.expires_in is not None else ""
            text = f"{self.key!r} is shut{opens}: the last to have it was {self.holder}"
        elif self.expires_in is not None:
            text += f", lease ends in {max(self.expires_in, 0):.1f} s unless renewed"
        if self.position is not None:
            text += f"; we were number {self.position} in the queue"
        return f"{text} ({after})"


class LeaseLost(HoldfastError):
    """We no longer hold the lock. Whatever it protected may be in other hands."""

    def __init__(
        self, key: str, reason: str, *, token: int, by: str | None = None, detail: str | None = None
    ) -> None:
        self.key, self.token = key, token
        self.reason, self.by, self.detail = reason, by, detail
        text = f"lease of {key!r} (token {token}) is lost: {reason}"
        if by:
            text += f" by {by}"
        if detail:
            text += f" ({detail})"
        super().__init__(text)

    def copy(self) -> LeaseLost:
        """Return the same loss as a new object: an error that is raised twice collects tracebacks."""
        return LeaseLost(self.key, self.reason, token=self.token, by=self.by, detail=self.detail)


class NotHeld(HoldfastError, RuntimeError):
    """Asked to release what is not held, or not any more."""

    def __init__(self, key: str, why: str, *, detail: str | None = None) -> None:
        self.key, self.why, self.detail = key, why, detail
        super().__init__(f"{key!r} is not held: {why}" + (f" ({detail})" if detail else ""))


class ReentryLimit(HoldfastError, RuntimeError):
    """The owner has entered this lock as often as it may."""

    def __init__(self, key: str, *, owner: str, holds: int, limit: int) -> None:
        self.key, self.owner, self.holds, self.limit = key, owner, holds, limit
        hint = "is a release missing, or the recursion endless?"
        if limit == 1:
            hint = "release it first, or ask with another owner="
        super().__init__(f"{key!r} has {holds} of at most {limit} holds by {owner} already: {hint}")


class UpgradeRefused(HoldfastError, RuntimeError):
    """The owner has the lock shared and wants it exclusive."""

    def __init__(self, key: str, *, owner: str) -> None:
        self.key, self.owner = key, owner
        super().__init__(
            f"{key!r} is held shared by {owner}, who asks for it exclusive: two who did that would wait for"
            " each other for ever. Release it first, or take it exclusive and downgrade()"
        )


class CapacityMismatch(HoldfastError, ValueError):
    """A semaphore has another number of permits than we believe, or fewer than we want to take."""

    def __init__(self, key: str, *, permits: int, stored: int, take: int = 1) -> None:
        self.key, self.permits, self.stored, self.take = key, permits, stored, take
        if not stored:
            text = f"nobody has said yet how many permits {key!r} has: pass permits="
        elif permits and permits != stored:
            text = (
                f"{key!r} has {stored} permits, not {permits}: make all callers agree,"
                " or change the number with resize()"
            )
        else:
            text = f"{key!r} has {stored} permits, so nobody can take {take}"
        super().__init__(text)


class DeadlockDetected(HoldfastError, RuntimeError):
    """We would have waited for ever: everybody in a circle waits for the next one."""

    def __init__(self, key: str, cycle: tuple[Link, ...]) -> None:
        self.key, self.cycle = key, cycle
        circle = "; ".join(map(str, cycle))
        super().__init__(
            f"waiting for {key!r} closed a circle: {circle}; and so on. Release what you hold and try again,"
            " or take several locks in one order: see hold_all()"
        )


class OperationFailed(HoldfastError, RuntimeError):
    """The operation that we waited for has failed as often as it may."""

    def __init__(self, key: str, failures: tuple[Failure, ...]) -> None:
        self.key, self.failures = key, failures
        last = f", at last that of {failures[-1]}" if failures else ""
        super().__init__(f"{key!r} was given up: its last {len(failures)} attempts have failed{last}")


class InstanceLost(HoldfastError):
    """This instance is not part of the cluster any more: its heartbeats were missed, or it has left.

    Whatever was assigned to it is lost with it. Join again to go on.
    """

    def __init__(self, id: str, reason: str) -> None:
        self.id, self.reason = id, reason
        super().__init__(f"instance {id!r} is lost: {reason}; join again to go on")


class WorkEnded(HoldfastError, RuntimeError):
    """The work has completed or failed already. With ``again=True`` it is begun anew."""

    def __init__(self, key: str, state: str, text: str = "") -> None:
        self.key, self.state, self.text = key, state, text
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        why = f" ({shown})" if shown else ""
        super().__init__(f"{key!r} has {state} already{why}; again=True begins it anew")


class AtCapacity(HoldfastError, RuntimeError):
    """The instance has as much work as it said it can have at a time."""

    def __init__(self, id: str, capacity: int) -> None:
        self.id, self.capacity = id, capacity
        super().__init__(
            f"instance {id!r} has {capacity} assignments, which is its capacity: finish some first"
        )


class Closed(HoldfastError, RuntimeError):
    """The client was used after it was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed; make a new one")


class InvalidKey(HoldfastError, ValueError):
    """The key cannot name a lock."""

    def __init__(self, key: object, reason: str) -> None:
        self.key, self.reason = key, reason
        shown = repr(key)
        if len(shown) > 60:
            shown = f"{shown[:57]}…"
        super().__init__(f"key {shown} {reason}")


class SettingsError(HoldfastError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class StoreError(HoldfastError):
    """The store could not answer as it should."""


class StoreUnavailable(StoreError):
    """The store did not answer, and the request was certainly not applied. Worth asking again."""


class OutcomeUnknown(StoreError):
    """The request may or may not have been applied. Ask again with the same attempt."""


class SchemaMismatch(StoreError):
    """The tables are of a version that this release does not know."""


class StoreMisconfigured(StoreError):
    """The store cannot work until somebody changes something: path, rights, settings."""


class StoreCorrupt(StoreError):
    """The store's data are damaged or are not what they should be."""


class AccessDenied(StoreError):
    """A server knows who asks, and that they may not do this."""


class NotAuthenticated(AccessDenied):
    """A server wants an access token, and got none, or one that is not valid (any more)."""


class LimitExceeded(StoreError):
    """A server allows each of its users only so much of something. Asking again does not help by itself."""

    def __init__(self, limit: str, most: float, detail: str | None = None) -> None:
        self.limit, self.most = limit, most
        super().__init__(detail or f"{limit}: at most {most:g} are allowed")


class TooManyRequests(StoreUnavailable):
    """A server was asked too often, and did not do it. Worth asking again after a while."""

    def __init__(self, retry_after: float, detail: str | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(detail or f"asked too often; try again in {retry_after:.1f} s")


class RequestRefused(StoreError):
    """A server could not make sense of a request: no such route, no JSON, too large, too slow."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        super().__init__(detail)


CODES: dict[type[HoldfastError], tuple[int, int]] = {
    # class: (exit code of the command line, HTTP status)
    LockTimeout: (75, 409),  # EX_TEMPFAIL: try again later
    LeaseLost: (76, 410),
    NotHeld: (77, 409),
    ReentryLimit: (78, 409),
    UpgradeRefused: (78, 409),
    CapacityMismatch: (78, 409),
    DeadlockDetected: (75, 409),
    OperationFailed: (71, 409),
    InstanceLost: (76, 410),
    WorkEnded: (78, 409),
    AtCapacity: (75, 409),
    Closed: (70, 503),
    InvalidKey: (64, 422),  # EX_USAGE
    SettingsError: (64, 422),
    StoreUnavailable: (69, 503),  # EX_UNAVAILABLE
    OutcomeUnknown: (69, 503),
    SchemaMismatch: (79, 500),
    StoreMisconfigured: (79, 500),
    StoreCorrupt: (74, 500),  # EX_IOERR
    AccessDenied: (67, 403),
    NotAuthenticated: (67, 401),
    LimitExceeded: (72, 429),
    TooManyRequests: (69, 429),
    RequestRefused: (65, 400),  # EX_DATAERR; its own status says more
    StoreError: (74, 500),
    HoldfastError: (70, 500),  # EX_SOFTWARE
}


def exit_code(error: HoldfastError) -> int:
    """Return the command line's exit code for *error*."""
    return _codes(error)[0]


def http_status(error: HoldfastError) -> int:
    """Return the status of a server's answer for *error*."""
    return error.status if isinstance(error, RequestRefused) else _codes(error)[1]


def kind_of(error: HoldfastError) -> type[HoldfastError]:
    """Return the class of *error* that callers know of. Stores have some of their own below it."""
    return next(kind for kind in type(error).__mro__ if kind in CODES)


def _codes(error: HoldfastError) -> tuple[int, int]:
    return CODES[kind_of(error)]
