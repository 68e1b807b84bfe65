"""Several locks at once, for tasks: what `AsyncHoldfast.hold_all` returns."""

from __future__ import annotations

import asyncio

from holdfast import errors
from holdfast.client.aio.engine import TaskEngine
from holdfast.client.aio.leases import AsyncLease, acquire
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import noted
from holdfast.client.ownership import current, owner
from holdfast.client.several import Leases, Several, first_of


class AsyncHoldAll(Several[AsyncLease]):
    """What `AsyncHoldfast.hold_all` returns: takes all keys on entering the block, or none.

    The body is cancelled when one of them is lost, and so is the wait for the others.
    """

    _engine: TaskEngine

    async def __aenter__(self) -> Leases[AsyncLease]:
        self._start()
        try:
            with owner(current()):  # one for all of them
                for key in self._keys:
                    wish = self._engine.wish(key, **self._options_for_the_next())
                    lease = await acquire(self._engine, wish)
                    self._taken[key] = lease
                    await lease.__aenter__()
                    self._leases.check()  # the first may have been lost while we waited for the next
                return self._leases
        except errors.LockTimeout as error:
            timeout = self._in_all(error)
            await self.__aexit__(type(timeout), timeout, error.__traceback__)
            raise timeout from error.__cause__
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        problems: list[errors.HoldfastError] = []
        said = error  # by the body, then by whoever cancels us while we release
        for lease in reversed(self._taken.values()):
            try:
                await lease.__aexit__(None if said is None else type(said), said, None)
            except errors.HoldfastError as problem:
                problems.append(problem)
                said = None  # if it was a cancellation, it came from this loss
            except BaseException as cancelled:  # noqa: BLE001 - the others have to be released first
                said = cancelled
        if not problems and said is error:
            return
        if said is None and error is not None and not isinstance(error, asyncio.CancelledError):
            said = error  # the losses came while we released, and the body had failed before
        if said is None:
            raise first_of(problems)
        for each in problems:
            noted(said, each)
        if said is not error:
            raise said
