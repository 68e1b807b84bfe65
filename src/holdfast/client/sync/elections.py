"""Elections for threads: see `holdfast.client.elections`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from holdfast import errors
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.elections import GRACE, BaseElection, BaseTerm, Candidacy, giving_back, is_loss_of
from holdfast.client.sync.engine import ThreadEngine
from holdfast.client.sync.leases import Lease, Leased, acquire
from holdfast.core.plans import Stopped
from holdfast.core.requests import Holder
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.signal_mask import block_signals, signals_unblocked


class Farewell:
    """Makes sure that *on_deposed* is told of a term once."""

    def __init__(self) -> None:
        self.begun = threading.Lock()  # taken by the thread that tells, and never given back
        self.told = threading.Event()


class Term(BaseTerm[Lease], Leased):
    """A time for which we are the leader. As a context manager it ends with the block.

    Being deposed is no error there: the block is left as if it had ended, and the election goes on.
    """

    def __init__(self, lease: Lease, depose: Callable[[Term], None]) -> None:
        self._lease = lease
        self._depose = depose

    def resign(self) -> None:
        """End the term: the next who waits is elected at once. Harmless if it is over."""
        self.lost.set()
        self._depose(self)
        with giving_back(self):
            self._lease.release()

    def __enter__(self) -> Term:
        self.check()
        return self

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> bool:
        self.resign()
        return is_loss_of(self, error)


class Election(BaseElection[Term]):
    """What `Holdfast.elect` returns: iterate over it, or give it callbacks."""

    _engine: ThreadEngine

    def __init__(self, engine: ThreadEngine, candidacy: Candidacy) -> None:
        super().__init__(engine, candidacy)
        self._farewell = Farewell()  # for our term, or for the last one
        self._teller: int | None = None  # the thread that is in on_deposed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if candidacy.by_itself:
            self._thread = threading.Thread(target=self._campaign, name="holdfast-election", daemon=True)
            self._thread.start()

    def leader(self) -> Holder | None:
        """Look who leads, us or anybody else; None if nobody does."""
        return self._engine.run(self._candidacy.look())

    def stop(self, timeout: Seconds = GRACE) -> None:
        """Take part no more. If we lead, the term ends: *on_deposed* is called, and the next is elected.

        *on_elected* may still run: it finds its term lost, and has *timeout* to return. A loop over this
        election ends when its body does.
        """
        patience = seconds(timeout, "timeout")
        term = self._begin_to_stop()
        thread = self._thread
        me = threading.current_thread()
        if thread is None or thread is me or self._teller == me.ident:
            return
        if term is not None:
            self._depose(self._farewell, term)
        thread.join(patience)
        if thread.is_alive() and term is not None:
            log().warning("on_elected of %r has not returned in %g s, and leads no more", self.key, patience)
            term.resign()

    def __iter__(self) -> Iterator[Term]:
        self._candidacy.check_iterable()
        while (term := self._win()) is not None:
            try:
                yield term
            finally:
                self._term = None
                term.resign()

    def __enter__(self) -> Election:
        return self

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        self.stop()

    def _win(self) -> Term | None:
        """Wait to be elected; None once it is stopped."""
        try:
            lease = acquire(self._engine, self._candidacy.wish(self._on_lost))
        except Stopped:
            return None
        self._farewell = farewell = Farewell()
        self._term = term = Term(lease, partial(self._depose, farewell))
        if self._candidacy.stopping:  # while we were elected
            self._term = None
            term.resign()
            return None
        return term

    # By itself.

    def _campaign(self) -> None:
        block_signals()
        while self._candidacy.campaigning:
            with self._candidacy.trying():
                if (term := self._win()) is not None:
                    self._candidacy.went(self._serve(term))
            if self._candidacy.failures:
                self._stopped.wait(self._candidacy.pause())

    def _serve(self, term: Term) -> bool:
        """Be the leader for a term. Tell whether nothing went wrong."""
        try:
            fine = self._call("on_elected", self._candidacy.on_elected, term)
            if fine:
                term.lost.wait()
        finally:
            self._term = None
            term.resign()
        return fine

    def _on_lost(self, loss: errors.LeaseLost) -> None:
        """Tell of a loss while on_elected may still run. The keeper calls this, and must not wait for it."""
        farewell, term = self._farewell, self._term  # in this order: see `_win`
        if term is None or self._candidacy.on_deposed is None:
            return
        depose = partial(self._depose, farewell, term)
        try:
            threading.Thread(target=depose, name="holdfast-deposed", daemon=True).start()
        except RuntimeError:  # the interpreter is ending
            depose()

    def _depose(self, farewell: Farewell, term: Term) -> None:
        """Tell that a term is over: once, and before the next one can begin."""
        me = threading.get_ident()
        if self._candidacy.on_deposed is None or self._teller == me:
            return
        if farewell.begun.acquire(blocking=False):
            self._teller = me
            try:
                self._call("on_deposed", self._candidacy.on_deposed, term)
            finally:
                self._teller = None
                farewell.told.set()
        else:
            farewell.told.wait()

    def _call(self, what: str, function: Callable[[Term], object] | None, term: Term) -> bool:
        try:
            with signals_unblocked():
                if function is not None:
                    function(term)
        except BaseException as error:  # noqa: BLE001 - a user's sys.exit() ends a thread, but not this one
            return not self._candidacy.failed(what, term, error)
        return True
