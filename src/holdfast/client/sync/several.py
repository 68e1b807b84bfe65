"""Several locks at once, for threads: what `Holdfast.hold_all` returns."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import errors
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.options import HoldOptions
from holdfast.client.ownership import current, owner
from holdfast.client.several import Leases, Several, first_of
from holdfast.client.sync.engine import ThreadEngine
from holdfast.client.sync.leases import Hold, Lease, forget


class HoldAll(Several[Lease]):
    """What `Holdfast.hold_all` returns: takes all keys on entering the block, or none."""

    def __init__(self, engine: ThreadEngine, keys: Iterable[str], options: HoldOptions) -> None:
        super().__init__(engine, keys, options)
        self._holds: list[Hold] = []

    def __enter__(self) -> Leases[Lease]:
        self._start()
        try:
            with owner(current()):  # one for all of them
                for key in self._keys:
                    hold = Hold(self._engine, key, self._options_for_the_next())
                    self._holds.append(hold)  # before it is entered: an interrupt may hit right after that
                    self._taken[key] = hold.__enter__()
                    self._leases.check()  # the first may have been lost while we waited for the next
                return self._leases
        except errors.LockTimeout as error:
            timeout = self._in_all(error)
            self.__exit__(type(timeout), timeout, error.__traceback__)
            raise timeout from error.__cause__
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        problems: list[errors.HoldfastError] = []
        try:
            for hold in reversed(self._holds):
                try:
                    hold.__exit__(kind, error, traceback)
                except errors.HoldfastError as problem:  # else it is a note of the body's own error
                    problems.append(problem)
        except BaseException:  # an interrupt: give them back without a word
            for hold in reversed(self._holds):
                forget(hold)
            raise
        if problems:
            raise first_of(problems)
