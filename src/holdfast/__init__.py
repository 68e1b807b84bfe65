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
    AtCapacity,
    CapacityMismatch,
    Closed,
    DeadlockDetected,
    HoldfastError,
    InstanceLost,
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
    WorkEnded,
)
from holdfast.operations import Operation
from holdfast.ownership import owner
from holdfast.several import HoldAll, Leases
from holdfast.stdlock import Lock
from holdfast.sync import Holdfast
from holdfast.sync_leases import Hold, Lease

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.aio_leases import AsyncHold, AsyncLease
    from holdfast.aio_operations import AsyncOperation
    from holdfast.aio_several import AsyncHoldAll
    from holdfast.cluster.aio import AsyncAssignment, AsyncClaims, AsyncInstance
    from holdfast.cluster.aio_electing import AsyncElection, AsyncTerm
    from holdfast.cluster.electing import Election, Term
    from holdfast.cluster.sync import Assignment, Claims, Instance
    from holdfast.core.cluster import InstanceView, Offered, WorkView
    from holdfast.fencing import raise_token
    from holdfast.scheduling.tasks import AsyncRun, AsyncSchedule
    from holdfast.scheduling.threads import Run, Schedule
    from holdfast.stdlock import AsyncLock

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "Assignment",
    "AsyncAssignment",
    "AsyncClaims",
    "AsyncElection",
    "AsyncHold",
    "AsyncHoldAll",
    "AsyncHoldfast",
    "AsyncInstance",
    "AsyncLease",
    "AsyncLock",
    "AsyncOperation",
    "AsyncRun",
    "AsyncSchedule",
    "AsyncTerm",
    "AtCapacity",
    "Backoff",
    "Broken",
    "CapacityMismatch",
    "Claims",
    "Closed",
    "DeadlockDetected",
    "Election",
    "Event",
    "Failure",
    "Hold",
    "HoldAll",
    "Holder",
    "Holdfast",
    "HoldfastError",
    "Instance",
    "InstanceLost",
    "InstanceView",
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
    "Offered",
    "Operation",
    "OperationFailed",
    "OutcomeUnknown",
    "ReentryLimit",
    "RequestRefused",
    "Resized",
    "Run",
    "Schedule",
    "SchemaMismatch",
    "Settings",
    "SettingsError",
    "StoreCorrupt",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Swept",
    "Term",
    "TooManyRequests",
    "UpgradeRefused",
    "Waiter",
    "WorkEnded",
    "WorkView",
    "keys",
    "owner",
    "raise_token",
]

# asyncio takes longer to import than all of holdfast, and few programs need all that there is: only who asks
# for these pays for them.
_LATER = {
    "holdfast.aio": (
        "AsyncHold",
        "AsyncHoldAll",
        "AsyncHoldfast",
        "AsyncLease",
        "AsyncLock",
        "AsyncOperation",
    ),
    "holdfast.cluster.aio": ("AsyncAssignment", "AsyncClaims", "AsyncInstance"),
    "holdfast.cluster.aio_electing": ("AsyncElection", "AsyncTerm"),
    "holdfast.cluster.electing": ("Election", "Term"),
    "holdfast.cluster.sync": ("Assignment", "Claims", "Instance"),
    "holdfast.core.cluster": ("InstanceView", "Offered", "WorkView"),
    "holdfast.fencing": ("raise_token",),
    "holdfast.scheduling.tasks": ("AsyncRun", "AsyncSchedule"),
    "holdfast.scheduling.threads": ("Run", "Schedule"),
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
