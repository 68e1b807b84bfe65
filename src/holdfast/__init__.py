"""Locks that hold across threads and processes, kept in SQL.

from holdfast import Holdfast

locks = Holdfast("sqlite:///locks.db")
with locks.hold("workflow:123", ttl=30, timeout=5) as lease:
    ...
"""

from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.client.ownership import owner
from holdfast.client.several import Leases
from holdfast.client.sync.client import Holdfast
from holdfast.client.sync.leases import Hold, Lease
from holdfast.client.sync.operations import Operation
from holdfast.client.sync.several import HoldAll
from holdfast.client.sync.stdlock import Lock
from holdfast.core import keys
from holdfast.core.backoff import Backoff
from holdfast.core.events import Event
from holdfast.core.family import Failure, Link
from holdfast.core.requests import Broken, Holder, LockView, Resized, Swept, Waiter
from holdfast.core.settings import Settings
from holdfast.errors import *  # noqa: F403 - all of them, see `errors.__all__`

if TYPE_CHECKING:
    from holdfast.client.aio.client import AsyncHoldfast
    from holdfast.client.aio.elections import AsyncElection, AsyncTerm
    from holdfast.client.aio.instances import AsyncAssignment, AsyncClaims, AsyncInstance
    from holdfast.client.aio.leases import AsyncHold, AsyncLease
    from holdfast.client.aio.operations import AsyncOperation
    from holdfast.client.aio.schedules import AsyncRun, AsyncSchedule
    from holdfast.client.aio.several import AsyncHoldAll
    from holdfast.client.aio.stdlock import AsyncLock
    from holdfast.client.fencing import raise_token
    from holdfast.client.sync.elections import Election, Term
    from holdfast.client.sync.instances import Assignment, Claims, Instance
    from holdfast.client.sync.schedules import Run, Schedule
    from holdfast.core.cluster import InstanceView, Offered, WorkView

__version__ = "0.1.0"

__all__ = [
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
    "Backoff",
    "Broken",
    "Claims",
    "Election",
    "Event",
    "Failure",
    "Hold",
    "HoldAll",
    "Holder",
    "Holdfast",
    "Instance",
    "InstanceView",
    "Lease",
    "Leases",
    "Link",
    "Lock",
    "LockView",
    "Offered",
    "Operation",
    "Resized",
    "Run",
    "Schedule",
    "Settings",
    "Swept",
    "Term",
    "Waiter",
    "WorkView",
    "keys",
    "owner",
    "raise_token",
]
__all__ += errors.__all__

# asyncio takes longer to import than all of holdfast, and few programs need all that there is: only who asks
# for these pays for them.
_LATER = {
    "holdfast.client.aio.client": "AsyncHold AsyncHoldAll AsyncHoldfast AsyncLease AsyncLock AsyncOperation",
    "holdfast.client.aio.elections": "AsyncElection AsyncTerm",
    "holdfast.client.aio.instances": "AsyncAssignment AsyncClaims AsyncInstance",
    "holdfast.client.aio.schedules": "AsyncRun AsyncSchedule",
    "holdfast.client.fencing": "raise_token",
    "holdfast.client.sync.elections": "Election Term",
    "holdfast.client.sync.instances": "Assignment Claims Instance",
    "holdfast.client.sync.schedules": "Run Schedule",
    "holdfast.core.cluster": "InstanceView Offered WorkView",
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names.split():
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
