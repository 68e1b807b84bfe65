"""Both clients have the same methods with the same arguments: code moves between them by adding ``await``."""

import inspect

import pytest

from holdfast import (
    Assignment,
    AsyncAssignment,
    AsyncClaims,
    AsyncElection,
    AsyncHold,
    AsyncHoldfast,
    AsyncInstance,
    AsyncLease,
    AsyncLock,
    AsyncRun,
    AsyncSchedule,
    AsyncTerm,
    Claims,
    Election,
    Hold,
    Holdfast,
    Instance,
    Lease,
    Lock,
    Run,
    Schedule,
    Term,
)

PAIRS = [(Holdfast, AsyncHoldfast), (Lease, AsyncLease), (Hold, AsyncHold), (Lock, AsyncLock)]
PAIRS += [(Instance, AsyncInstance), (Assignment, AsyncAssignment), (Claims, AsyncClaims)]
PAIRS += [(Election, AsyncElection), (Term, AsyncTerm)]
PAIRS += [(Schedule, AsyncSchedule), (Run, AsyncRun)]
# asyncio.Lock.acquire takes no arguments, threading.Lock.acquire does.
DIFFERENT = {"Lock.acquire"}


def members(cls: type) -> dict[str, object]:
    return {name: value for name, value in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "async_"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_have_the_same_names(sync, async_):
    assert set(members(sync)) == set(members(async_))


@pytest.mark.parametrize(("sync", "async_"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_take_the_same_arguments(sync, async_):
    for name, member in members(sync).items():
        if inspect.isroutine(member) and f"{sync.__name__}.{name}" not in DIFFERENT:
            mine = inspect.signature(member).parameters
            theirs = inspect.signature(members(async_)[name]).parameters
            assert [(p.name, p.kind, p.default) for p in mine.values()] == [
                (p.name, p.kind, p.default) for p in theirs.values()
            ], name
