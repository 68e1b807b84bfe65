"""What a caller holds, behind its `Lease`: its state, losing it, and giving it back.

The same for threads and tasks. Methods that return generators are plans, which an engine runs.
"""

from __future__ import annotations

import random

from holdfast import errors, identity
from holdfast.client.engine import Engine
from holdfast.client.keeper_thread import CLIENT_CLOSED, RELEASED_ALL
from holdfast.client.options import Wish
from holdfast.client.ownership import Block
from holdfast.clock import boot_time
from holdfast.core import plans
from holdfast.core.data import replace
from holdfast.core.family import Outcome
from holdfast.core.keeper import Kept, loss_reason
from holdfast.core.plans import Plan
from holdfast.core.requests import Downgrade, Fence, NotHeld, Refused, Release, Released, Withdraw
from holdfast.log import log
from holdfast.signal_mask import signals_unblocked


class Holding:
    """See the module."""

    __slots__ = (
        "_forks",
        "block",
        "engine",
        "kept",
        "left_to_transaction",
        "outcome",
        "pursued",
        "released",
        "wish",
    )

    def __init__(self, engine: Engine, kept: Kept, wish: Wish) -> None:
        self.engine = engine
        self.kept = kept
        self.wish = wish
        self.released = False
        self.left_to_transaction = False  # released when that commits; the keeper renews it until then
        self.pursued = False  # it could not be released yet, and is given back in the background
        self.outcome: Outcome | None = None  # of an operation, to be told when it is released
        self.block: Block | None = None  # that it was entered as
        self._forks = identity.forks

    @property
    def key(self) -> str:
        """The name of the lock."""
        return self.kept.grant.key

    @property
    def held(self) -> bool:
        """Whether the lease can be trusted at this moment."""
        return not (self.released or self.pursued) and self.loss() is None

    @property
    def remaining(self) -> float:
        """For how many seconds the lease can be trusted if it is not renewed; 0 when it is over."""
        return max(self.kept.ends_at - boot_time(), 0.0) if self.held else 0.0

    @property
    def state(self) -> str:
        """How it is, in words."""
        if self.released or self.pursued:
            return "released" if self.released else "being released"
        if loss := self.loss():
            return f"lost: {loss.reason}"
        return f"trusted {self.remaining:.1f} s"

    def forget(self) -> None:
        """Give it back without a word, after an interrupt, which only threads have."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise `LeaseLost` if the lease cannot be trusted any more, `NotHeld` if it was released."""
        if self.released:
            raise errors.NotHeld(self.key, "released already")
        if self.pursued:
            raise errors.NotHeld(self.key, "being released")
        if loss := self.loss():
            raise loss.copy()

    def loss(self) -> errors.LeaseLost | None:
        """Return why it is lost, if it is."""
        self._notice_fork()
        return self.kept.loss(boot_time())

    def _notice_fork(self) -> None:
        """Lose it in a forked child. The keeper tells those it keeps; not those being released."""
        if self._forks != identity.forks:
            self.kept.lose("forked", detail="the process that forked this one holds it")

    def enter_block(self) -> None:
        """Make what runs inside of its block the owner of the lease, unless that was given as ``owner=``.

        To be called by the ``__enter__`` of that block.
        """
        if not self.wish.named:
            self.block = Block(self.kept.grant.owner, depth=2)

    def leave_block(self) -> None:
        """Let what runs from now on be somebody else."""
        block, self.block = self.block, None
        if block is not None:
            block.leave()

    def report_loss(self) -> None:
        """Call *on_lost*, whose errors are logged: they must not stop the keeper."""
        if self.wish.on_lost is not None and self.kept.lost is not None:
            try:
                with signals_unblocked():
                    self.wish.on_lost(self.kept.lost.copy())
            except Exception:  # noqa: BLE001 - it is the user's code
                log().exception("on_lost of %r failed", self.key)

    def lease_lost(self) -> None:
        """Do what else has to be done once it is lost, before its caller may have heard of it."""

    def check_not_released(self) -> None:
        """Raise if it was released, or belongs to the process that forked this one."""
        kept = self.kept
        if self.released:
            if kept.lost is not None and kept.lost.reason == RELEASED_ALL:
                raise kept.lost.copy()
            raise errors.NotHeld(self.key, "released already")
        self._notice_fork()
        if kept.lost is not None and self._forks != identity.forks:
            raise kept.lost.copy()

    def downgrading(self) -> Plan[None]:
        """Downgrade as a plan."""
        self.check_not_released()
        self.check()
        kept, before = self.kept, self.kept.grant
        # From now on others may be let in, whatever becomes of the answer, and of us.
        kept.grant = replace(before, terms=replace(before.terms, mode="shared"))
        try:
            request = Downgrade(self.key, before.attempt, before.token)
            answer = yield from self.engine.asking(request, unknown_too=True)
        except errors.StoreUnavailable:  # certainly not
            kept.grant = before
            raise
        self.hear(answer)
        if isinstance(answer, Refused):
            kept.grant = before
            raise errors.SettingsError(
                f"{self.key!r} was entered more than once, and whoever is still inside counts on having it"
                " exclusive: downgrade when one hold is left"
            )

    # In a transaction of the caller's.

    def fencing(self) -> Fence:
        """Return the fence to be made part of a transaction."""
        self.check()
        if self.kept.grant.terms.mode != "exclusive":
            raise errors.SettingsError(
                f"{self.key!r} is held on terms ({self.kept.grant.terms.mode}) that let others in: only an"
                " exclusive lease can be fenced"
            )
        return Fence(self.key, self.kept.grant.attempt, self.kept.grant.token)

    def hear(self, said: object) -> None:
        """Take in what the store has answered. Raise the loss if it is one."""
        if isinstance(said, NotHeld):
            self.kept.lose(loss_reason(said.why), by=said.by, detail=said.reason)
            self.engine.keeper.drop(self.kept.grant.attempt)
            self.engine.keeper.tell(self.kept)
            assert self.kept.lost is not None
            raise self.kept.lost.copy()

    def leaving(self) -> Release:
        """Return the release to be made part of a transaction."""
        self.check_not_released()
        self.check()
        # Now, because we may not hear of it: code that is cancelled can commit all the same.
        self.kept.leaving = True
        return Release(self.key, self.kept.grant.attempt, self.kept.grant.token, self.kept.grant.retire)

    def leave_to_transaction(self) -> bool:
        """At the end of a block: leave the rest to the transaction that was to release it, if there is one.

        If that was rolled back, or is later, the lease ends with its ttl: while it is open it has the row.
        A keeper that tried to give it back meanwhile would wait for the row, and renew nothing.
        """
        if not self.left_to_transaction:
            return False
        self._notice_fork()
        if self.released or self._forks != identity.forks:
            return False
        self.engine.keeper.drop(self.kept.grant.attempt)
        self.leave_block()
        self.released = True
        return True

    def releasing(self) -> Plan[None]:
        """Release as a plan: check, ask, and raise if the lease was lost meanwhile."""
        kept = self.kept
        self.check_not_released()
        self.leave_block()
        self.engine.keeper.drop(kept.grant.attempt)
        if kept.lost is not None and kept.lost.reason == CLIENT_CLOSED:
            self.released = True
            raise kept.lost.copy()
        refused = False
        try:
            answer = yield from self._giving_back(self.outcome)
            if isinstance(answer, Refused):  # the same owner is still in it: the last to leave will say
                refused = True
                answer = yield from self._giving_back(None)
        except plans.Abandoned as abandoned:
            # It was asked for all the same, and must not be trusted any more.
            self.released = True
            if abandoned.in_vain:
                self.pursue()
            raise
        except errors.StoreError as error:
            self.pursue()
            if loss := self.loss():  # what the store has to say does not matter any more
                raise loss.copy() from error
            raise
        self.released = True
        if isinstance(answer, NotHeld):
            if answer.why == "already" and (kept.leaving or self.pursued):
                return  # a transaction or the keeper has released it
            if answer.why == "already" and kept.lost is None:  # two at once
                raise errors.NotHeld(self.key, "released already")
            kept.lose(loss_reason(answer.why), by=answer.by, detail=answer.reason)
        elif self.outcome is not None and not refused:
            kept.tell = None  # the store took it while the lease was ours: whatever our clock says by now
            return
        if kept.lost is not None:
            self.engine.keeper.tell(kept)
            raise kept.lost.copy()
        kept.tell = None  # it refers to us: without it nothing is left for the garbage collector
        if refused and kept.grant.holds == 1:
            raise errors.NotHeld(
                self.key, "the operation was entered again and is still being done: the last to leave ends it"
            )

    def pursue(self) -> None:
        """Have it given back in the background: it cannot be trusted from now on."""
        self.pursued = True
        grant = self.kept.grant
        self.engine.keeper.pursue(Withdraw(grant.key, grant.attempt, held=True), grant.ttl)

    def _giving_back(self, outcome: Outcome | None) -> Plan[Released | NotHeld | Refused]:
        return plans.release(
            self.kept.grant,
            settings=self.engine.settings,
            clock=boot_time,
            roll=random.random,
            outcome=outcome,
        )
