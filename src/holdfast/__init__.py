"""Locks that hold across threads and processes, kept in SQL.

from holdfast import Holdfast

locks = Holdfast("sqlite:///locks.db")
with locks.hold("workflow:123", ttl=30, timeout=5) as lease:
    ...
"""

from typing import TYPE_CHECKING

from holdfast.core import keys
from holdfast.core.backoff import Backoff
from holdfast.core.events import Event
from holdfast.core.family import Failure, Link
from holdfast.core.requests import Broken, Holder, LockView, Resized, Swept, Waiter
from holdfast.core.settings import Settings
from holdfast.errors import (
    AccessDenied,
    CapacityMismatch,
    Closed,
    DeadlockDetected,
    HoldfastError,
    InvalidKey,
    LeaseLost,
    LimitExceeded,
    LockTimeout,
    NotAuthenticated,
    NotHeld,
    OperationFailed,
    OutcomeUnknown,
    ReentryLimit,
    RequestRefused,
    SchemaMismatch,
    SettingsError,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TooManyRequests,
    UpgradeRefused,
)
from holdfast.operations import Operation
from holdfast.several import HoldAll, Leases
from holdfast.stdlock import Lock
from holdfast.sync import Holdfast
from holdfast.sync_leases import Hold, Lease

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.aio_leases import AsyncHold, AsyncLease
    from holdfast.aio_operations import AsyncOperation
    from holdfast.aio_several import AsyncHoldAll
    from holdfast.fencing import raise_token
    from holdfast.stdlock import AsyncLock

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AsyncHold",
    "AsyncHoldAll",
    "AsyncHoldfast",
    "AsyncLease",
    "AsyncLock",
    "AsyncOperation",
    "Backoff",
    "Broken",
    "CapacityMismatch",
    "Closed",
    "DeadlockDetected",
    "Event",
    "Failure",
    "Hold",
    "HoldAll",
    "Holder",
    "Holdfast",
    "HoldfastError",
    "InvalidKey",
    "Lease",
    "LeaseLost",
    "Leases",
    "LimitExceeded",
    "Link",
    "Lock",
    "LockTimeout",
    "LockView",
    "NotAuthenticated",
    "NotHeld",
    "Operation",
    "OperationFailed",
    "OutcomeUnknown",
    "ReentryLimit",
    "RequestRefused",
    "Resized",
    "SchemaMismatch",
    "Settings",
    "SettingsError",
    "StoreCorrupt",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Swept",
    "TooManyRequests",
    "UpgradeRefused",
    "Waiter",
    "keys",
    "raise_token",
]

_ASYNC = frozenset(
    {"AsyncHold", "AsyncHoldAll", "AsyncHoldfast", "AsyncLease", "AsyncLock", "AsyncOperation"}
)


def __getattr__(name: str) -> object:
    # asyncio takes longer to import than all of holdfast: only who asks for it pays for it.
    if name in _ASYNC:
        from holdfast import aio

        return getattr(aio, name)
    if name == "raise_token":
        from holdfast import fencing

        return fencing.raise_token
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
