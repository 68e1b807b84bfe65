"""A lease as far as it is the same for threads and tasks: what it says, losing it, and giving it back."""

from __future__ import annotations

import random
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast import errors, identity
from holdfast.clock import boot_time
from holdfast.core import plans
from holdfast.core.data import replace
from holdfast.core.family import Failure, Mode, Outcome
from holdfast.core.keeper import Kept, loss_reason
from holdfast.core.requests import Downgrade, Fence, Granted, NotHeld, Refused, Release, Released, Withdraw
from holdfast.keeping import CLIENT_CLOSED, RELEASED_ALL
from holdfast.log import log
from holdfast.masking import signals_unblocked
from holdfast.ownership import Block

if TYPE_CHECKING:
    from holdfast.client import BaseClient, Wish


class BaseLease:
    """A lease as far as it is the same for threads and tasks.

    The object is the proof: any thread or task of the process that has it may check, fence and release it.
    """

    def __init__(self, kept: Kept, wish: Wish) -> None:
        self._kept = kept
        self._wish = wish
        self._forks = identity.forks
        self._released = False
        self._left_to_transaction = False
        self._pursued = False  # it could not be released yet, and is given back in the background
        self._outcome: Outcome | None = None  # of an operation, to be told when it is released
        self._block: Block | None = None  # that it was entered as

    @property
    def key(self) -> str:
        """The name of the lock."""
        return self._kept.grant.key

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every lease of this key before."""
        return self._kept.grant.token

    @property
    def owner(self) -> str:
        """Whose lease it is."""
        return self._kept.grant.owner

    @property
    def ttl(self) -> float:
        """How long the lease holds without renewal."""
        return self._kept.grant.ttl

    @property
    def mode(self) -> Mode:
        """``exclusive``, ``shared``, or ``permits`` of a semaphore."""
        return self._kept.grant.terms.mode

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Who had this operation before us, and what went wrong."""
        return self._kept.grant.failures

    @property
    def remaining(self) -> float:
        """For how many seconds the lease can be trusted if it is not renewed; 0 when it is over."""
        if not self.held:
            return 0.0
        return max(self._kept.ends_at - boot_time(), 0.0)

    @property
    def held(self) -> bool:
        """Whether the lease can be trusted at this moment."""
        return not (self._released or self._pursued) and self._loss() is None

    def check(self) -> None:
        """Raise `LeaseLost` if the lease cannot be trusted any more, `NotHeld` if it was released."""
        if self._released:
            raise errors.NotHeld(self.key, "released already")
        if self._pursued:
            raise errors.NotHeld(self.key, "being released")
        if loss := self._loss():
            raise loss.copy()

    def __repr__(self) -> str:
        if self._released or self._pursued:
            state = "released" if self._released else "being released"
        elif loss := self._loss():
            state = f"lost: {loss.reason}"
        else:
            state = f"trusted {self.remaining:.1f} s"
        return f"<{type(self).__name__} {self.key!r} token={self.token}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that holds it")

    def _loss(self) -> errors.LeaseLost | None:
        self._notice_fork()
        return self._kept.loss(boot_time())

    def _notice_fork(self) -> None:
        """Lose it in a forked child. The keeper tells those it keeps, and not who is being released."""
        if self._forks != identity.forks:
            self._kept.lose("forked", detail="the process that forked this one holds it")

    def _enter_block(self) -> None:
        """Make what runs inside of its block the owner of the lease, unless that was given as ``owner=``."""
        if not self._wish.named:
            self._block = Block(self.owner, sys._getframe(1))  # noqa: SLF001

    def _leave_block(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.leave()

    def _report_loss(self) -> None:
        """Call *on_lost*, whose errors are logged: they must not stop the keeper."""
        if self._wish.on_lost is not None and self._kept.lost is not None:
            try:
                with signals_unblocked():
                    self._wish.on_lost(self._kept.lost.copy())
            except Exception:  # noqa: BLE001 - it is the user's code
                log().exception("on_lost of %r failed", self.key)

    def _check_not_released(self) -> None:
        kept = self._kept
        if self._released:
            if kept.lost is not None and kept.lost.reason == RELEASED_ALL:
                raise kept.lost.copy()
            raise errors.NotHeld(self.key, "released already")
        self._notice_fork()
        if kept.lost is not None and self._forks != identity.forks:
            raise kept.lost.copy()

    def _downgrading(self, client: BaseClient) -> Generator[Any, Any, None]:
        """Downgrade as a plan."""
        self._check_not_released()
        self.check()
        kept, before = self._kept, self._kept.grant
        # From now on others may be let in, whatever becomes of the answer, and of us.
        kept.grant = replace(before, terms=replace(before.terms, mode="shared"))
        try:
            answer: Granted | NotHeld | Refused = yield from plans.ask(
                Downgrade(self.key, before.attempt, self.token),
                settings=client.settings,
                clock=boot_time,
                roll=random.random,
                unknown_too=True,
            )
        except errors.StoreUnavailable:  # certainly not
            kept.grant = before
            raise
        if isinstance(answer, NotHeld):
            self._lose_in_transaction(client, answer)
        if isinstance(answer, Refused):
            kept.grant = before
            raise errors.SettingsError(
                f"{self.key!r} was entered more than once, and whoever is still inside counts on having it"
                " exclusive: downgrade when one hold is left"
            )

    # In a transaction of the caller's.

    def _fencing(self) -> Fence:
        self.check()
        if self.mode != "exclusive":
            raise errors.SettingsError(
                f"{self.key!r} is held on terms ({self.mode}) that let others in: only an exclusive lease can"
                " be fenced"
            )
        return Fence(self.key, self._kept.grant.attempt, self.token)

    def _lose_in_transaction(self, client: BaseClient, said: NotHeld) -> NoReturn:
        """Raise the loss that a transaction has met with."""
        self._kept.lose(loss_reason(said.why), by=said.by, detail=said.reason)
        client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        client._keeping.tell(self._kept)  # noqa: SLF001
        assert self._kept.lost is not None
        raise self._kept.lost.copy()

    def _leaving(self) -> Release:
        """Return the release to be made part of a transaction."""
        self._check_not_released()
        self.check()
        # Now, because we may not hear of it: whoever is cancelled can commit all the same.
        self._kept.leaving = True
        return Release(self.key, self._kept.grant.attempt, self.token, self._kept.grant.retire)

    def _left(self) -> None:
        """Note that it is released once the transaction commits; the keeper renews until it is gone."""
        self._left_to_transaction = True

    def _leave_to_transaction(self, client: BaseClient) -> bool:
        """At the end of a block: leave the rest to the transaction that was to release it, if there is one.

        If that was rolled back, or is later, the lease ends with its ttl: while it is open it has the row.
        Whoever tried to give that back meanwhile would wait for it, and renew nothing.
        """
        self._notice_fork()
        if not self._left_to_transaction or self._released or self._forks != identity.forks:
            return False
        client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        self._leave_block()
        self._released = True
        return True

    def _releasing(self, client: BaseClient) -> Generator[Any, Any, None]:
        """Release as a plan: check, ask, and raise if the lease was lost meanwhile."""
        kept = self._kept
        self._check_not_released()
        self._leave_block()
        client._keeping.drop(kept.grant.attempt)  # noqa: SLF001
        if kept.lost is not None and kept.lost.reason == CLIENT_CLOSED:
            self._released = True
            raise kept.lost.copy()
        refused = False
        try:
            answer = yield from self._giving_back(client, self._outcome)
            if isinstance(answer, Refused):  # the same owner is still in it: whoever leaves last will say
                refused = True
                answer = yield from self._giving_back(client, None)
        except (
            plans.Abandoned
        ) as abandoned:  # it was asked for all the same, and must not be trusted any more
            self._released = True
            if abandoned.in_vain:
                self._pursue(client)
            raise
        except errors.StoreError as error:
            self._pursue(client)
            if loss := self._loss():  # what the store has to say does not matter any more
                raise loss.copy() from error
            raise
        self._released = True
        if isinstance(answer, NotHeld):
            if answer.why == "already" and kept.leaving:  # the transaction has committed
                return
            if answer.why == "already" and self._pursued:
                return
            if answer.why == "already" and kept.lost is None:  # two at once
                raise errors.NotHeld(self.key, "released already")
            kept.lose(loss_reason(answer.why), by=answer.by, detail=answer.reason)
        elif self._outcome is not None and not refused:
            kept.tell = None  # the store took it while the lease was ours: whatever our clock says by now
            return
        if kept.lost is not None:
            client._keeping.tell(kept)  # noqa: SLF001
            raise kept.lost.copy()
        kept.tell = None  # it refers to us: without it nothing is left for the garbage collector
        if refused and kept.grant.holds == 1:
            raise errors.NotHeld(
                self.key, "the operation was entered again and is still being done: the last to leave ends it"
            )

    def _pursue(self, client: BaseClient) -> None:
        """Have it given back in the background: it cannot be trusted from now on."""
        self._pursued = True
        grant = self._kept.grant
        client._keeping.pursue(Withdraw(grant.key, grant.attempt, held=True), grant.ttl)  # noqa: SLF001

    def _giving_back(
        self, client: BaseClient, outcome: Outcome | None
    ) -> Generator[Any, Any, Released | NotHeld | Refused]:
        return plans.release(
            self._kept.grant,
            settings=client.settings,
            clock=boot_time,
            roll=random.random,
            outcome=outcome,
        )


def with_note(error: BaseException, problem: errors.HoldfastError) -> None:
    """Tell of a second problem without hiding the first."""
    error.add_note(f"holdfast: while leaving the block, {problem}")
