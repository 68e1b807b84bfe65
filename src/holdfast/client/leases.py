"""A lease as a caller sees it: what it says. The same for threads and tasks; `holdings` has its state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, TypeVar

from holdfast import errors
from holdfast.client.engine import Engine
from holdfast.client.holdings import Holding
from holdfast.client.keeper_thread import RELEASED_ALL
from holdfast.client.options import HoldOptions, WaitOptions, check_options
from holdfast.client.ownership import Block
from holdfast.core import plans
from holdfast.core.family import Failure, Mode
from holdfast.core.plans import Plan


class BaseLease:
    """A lease as far as it is the same for threads and tasks.

    The object is the proof: any thread or task of the process that has it may check, fence and release it.
    """

    _holding: Holding

    @property
    def key(self) -> str:
        """The name of the lock."""
        return self._holding.kept.grant.key

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every lease of this key before."""
        return self._holding.kept.grant.token

    @property
    def owner(self) -> str:
        """Whose lease it is."""
        return self._holding.kept.grant.owner

    @property
    def ttl(self) -> float:
        """How long the lease holds without renewal."""
        return self._holding.kept.grant.ttl

    @property
    def mode(self) -> Mode:
        """``exclusive``, ``shared``, or ``permits`` of a semaphore."""
        return self._holding.kept.grant.terms.mode

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Who had this operation before us, and what went wrong."""
        return self._holding.kept.grant.failures

    @property
    def remaining(self) -> float:
        """For how many seconds the lease can be trusted if it is not renewed; 0 when it is over."""
        return self._holding.remaining

    @property
    def held(self) -> bool:
        """Whether the lease can be trusted at this moment."""
        return self._holding.held

    def check(self) -> None:
        """Raise `LeaseLost` if the lease cannot be trusted any more, `NotHeld` if it was released."""
        self._holding.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token={self.token}, {self._holding.state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that holds it")


L = TypeVar("L", bound=BaseLease)  # that of threads, or that of tasks


class BaseLeased:
    """What is ours as long as its lease is: the term of a leader, the run of a schedule, assigned work."""

    _lease: BaseLease

    @property
    def key(self) -> str:
        """The key of the lock that is held for it."""
        return self._lease.key

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every one of this key before."""
        return self._lease.token

    @property
    def remaining(self) -> float:
        """For how many seconds it is ours for sure if nothing is renewed; 0 when it is over."""
        return self._lease.remaining

    def check(self) -> None:
        """Raise `LeaseLost` if it may be somebody else's by now, `NotHeld` if we have given it back."""
        self._lease.check()


class BaseHold:
    """A lock that is held for the time of a block, as far as it is the same for threads and tasks."""

    _lease: BaseLease | None = None
    _block: Block | None = None  # not the lease: a block has frames, and those have the lease

    def __init__(self, engine: Engine, key: str, options: HoldOptions) -> None:
        self._engine = engine
        self._key = key
        self._options = options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r} {self._lease or 'not entered'}>"

    def _refuse_twice(self) -> NoReturn:
        raise errors.SettingsError(f"this hold of {self._key!r} was entered before; call hold() again")

    def _leave_block(self) -> None:
        if self._block is not None:
            self._block.leave()


def permits_of(permits: int | None, take: int, options: WaitOptions) -> HoldOptions:
    """Return how some of the permits of a semaphore are held."""
    check_options(options, WaitOptions)
    return {"mode": "exclusive", **options, "permits": permits or 0, "take": take}


def holding_of(lease: BaseLease) -> Holding:
    """Return the state of a lease, for the other parts of the client."""
    return lease._holding  # noqa: SLF001 - the one door to it


def revoke(lease: BaseLease) -> None:
    """Tell the code that has a lease that it must not trust it any more."""
    holding = holding_of(lease)
    holding.kept.lose(RELEASED_ALL)
    holding.engine.keeper.tell(holding.kept)


def release_later(leases: Iterable[BaseLease]) -> None:
    """Have leases released in the background: the code that wanted to release them was interrupted."""
    for lease in leases:
        revoke(lease)
        holding = holding_of(lease)
        holding.pursue()
        holding.leave_block()
        holding.released = True


def release_all(leases: tuple[BaseLease, ...]) -> Plan[int]:
    """Release leases; code inside their blocks has lost them. Return how many there were.

    If the store cannot be asked, that is raised when all were tried.
    """
    trouble: BaseException | None = None
    for number, lease in enumerate(leases, 1):
        revoke(lease)
        try:
            yield from holding_of(lease).releasing()
        except (errors.LeaseLost, errors.NotHeld) as error:
            trouble = error.__cause__ or trouble
        except plans.Abandoned:  # perhaps because we are inside the block of one of them
            release_later(leases[number:])
            raise
    if trouble is not None:
        raise trouble
    return len(leases)


def noted(error: BaseException | None, problem: errors.HoldfastError) -> bool:
    """Tell of a second problem without hiding the first, if there is one. Tell whether there is."""
    if error is not None:
        error.add_note(f"holdfast: while leaving the block, {problem}")
    return error is not None
