"""What an answer means for the caller who asked: which error a client raises for it, and a server tells.

Only here. Not all are raised at once: a plan that is answered `NotHeld` asks again with a new attempt.
"""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.cluster import Assign, Beat, Claim, Ended, Full, Heartbeat, Join, NotDue

# Why an instance is lost.
DEAD = "its peers have declared it dead"
DRAINING = "it is draining and takes no more work"
LEFT = "it has left"

_GOOD = frozenset({r.Granted, r.Queued, r.Released})  # nearly all, and so looked for first

_REFUSALS = {
    "holds": "it has other holds as well, and this is for the last one",
    "free": "nobody holds it",
    "take": "there are not that many permits",
}


def error_for(request: r.Request[Any], answer: Any) -> errors.HoldfastError | None:
    """Return what is raised for *answer*; None if it is what was asked for."""
    if type(answer) in _GOOD:
        return None
    key: str = getattr(request, "key", "")
    match answer:
        case r.Busy():
            return errors.LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
        case r.NotHeld():
            parts = [part for part in (answer.by and f"by {answer.by}", answer.reason) if part]
            return errors.NotHeld(key, answer.why, detail=" ".join(parts) or None)
        case r.TooManyHolds() if isinstance(request, r.Acquire):
            return errors.ReentryLimit(key, owner=request.owner, holds=answer.holds, limit=request.limit)
        case r.Refused(why="upgrade") if isinstance(request, r.Acquire):
            return errors.UpgradeRefused(key, owner=request.owner)
        case r.Refused() if isinstance(request, r.Acquire):
            terms = request.terms
            return errors.CapacityMismatch(key, permits=terms.permits, stored=answer.permits, take=terms.take)
        case r.Refused():
            return errors.NotHeld(key, "refused", detail=_REFUSALS.get(answer.why, answer.why))
        case r.Deadlocked():
            return errors.DeadlockDetected(key, answer.cycle)
        case r.Failed():
            return errors.OperationFailed(key, answer.failures)
        case Beat(state="draining") if isinstance(request, Join | Heartbeat):
            return None
        case Beat() if answer.state != "alive" and isinstance(request, Join | Heartbeat | Claim | Assign):
            return gone(request.id, answer)
        case Full() if isinstance(request, Assign):
            return errors.AtCapacity(request.id, answer.capacity)
        case Ended() if isinstance(request, Assign):
            return errors.WorkEnded(key, answer.work.state, answer.work.text)
        case NotDue():
            return errors.LockTimeout(key, waited=0.0, expires_in=answer.due_in)
    return None


def refusal(request: r.Request[Any], answer: Any) -> errors.HoldfastError:
    """Return what is raised for *answer*, which is not what was asked for."""
    error = error_for(request, answer)
    assert error is not None, answer
    return error


def gone(id: str, beat: Beat) -> errors.InstanceLost:
    """Return what is raised for an instance that is answered its state in place of what it asked for."""
    return errors.InstanceLost(id, {"draining": DRAINING, "left": LEFT}.get(beat.state, DEAD))
