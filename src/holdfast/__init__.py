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
from holdfast.core.requests import Broken, Holder, LockView, Swept, Waiter
from holdfast.core.settings import Settings
from holdfast.errors import (
    Closed,
    HoldfastError,
    InvalidKey,
    LeaseLost,
    LockTimeout,
    NotHeld,
    OutcomeUnknown,
    ReentryLimit,
    SchemaMismatch,
    SettingsError,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from holdfast.stdlock import Lock
from holdfast.sync import Hold, Holdfast, Lease

if TYPE_CHECKING:
    from holdfast.aio import AsyncHold, AsyncHoldfast, AsyncLease
    from holdfast.fencing import raise_token
    from holdfast.stdlock import AsyncLock

__version__ = "0.1.0"

__all__ = [
    "AsyncHold",
    "AsyncHoldfast",
    "AsyncLease",
    "AsyncLock",
    "Backoff",
    "Broken",
    "Closed",
    "Event",
    "Hold",
    "Holder",
    "Holdfast",
    "HoldfastError",
    "InvalidKey",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockTimeout",
    "LockView",
    "NotHeld",
    "OutcomeUnknown",
    "ReentryLimit",
    "SchemaMismatch",
    "Settings",
    "SettingsError",
    "StoreCorrupt",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Swept",
    "Waiter",
    "keys",
    "raise_token",
]

_ASYNC = frozenset({"AsyncHold", "AsyncHoldfast", "AsyncLease", "AsyncLock"})


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
