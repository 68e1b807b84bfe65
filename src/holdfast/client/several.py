"""Several locks at once: the part that is the same for threads and tasks.

The keys are taken one after the other, in the order of their names. So two that want the same keys never wait
for each other. Each key has its ordinary queue, lease and token; there is no lock of many keys in a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic

from holdfast import errors
from holdfast.client.engine import Engine
from holdfast.client.leases import L, noted
from holdfast.client.options import HoldOptions, check_options
from holdfast.clock import boot_time
from holdfast.core.keys import validate
from holdfast.core.settings import seconds


class Leases(Mapping[str, L]):
    """The leases of several keys, by key, in the order of the keys."""

    def __init__(self, leases: dict[str, L]) -> None:
        self._leases = leases

    def __getitem__(self, key: str) -> L:
        return self._leases[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._leases.values()))}>"

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each key."""
        return {key: lease.token for key, lease in self._leases.items()}

    @property
    def held(self) -> bool:
        """Whether all of them can be trusted at this moment."""
        return all(lease.held for lease in self._leases.values())

    @property
    def remaining(self) -> float:
        """For how many seconds all of them can be trusted if they are not renewed."""
        return min(lease.remaining for lease in self._leases.values())

    def check(self) -> None:
        """Raise `LeaseLost` for the first that cannot be trusted any more, `NotHeld` if it was released."""
        for lease in self._leases.values():
            lease.check()


class Several(Generic[L]):
    """What is the same for threads and tasks: which keys, and how much time is left for them."""

    def __init__(self, engine: Engine, keys: Iterable[str], options: HoldOptions) -> None:
        check_options(options)
        if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
            raise errors.SettingsError(f"keys is {keys!r}; it must be a list of keys")
        self._engine = engine
        self._keys = sorted({validate(key) for key in keys})
        if not self._keys:
            raise errors.SettingsError("there are no keys to hold; give at least one")
        self._options = options
        self._taken: dict[str, L] = {}
        self._leases = Leases(self._taken)
        self._timeout: float | None = None
        self._started: float | None = None

    def __repr__(self) -> str:
        state = "not entered" if self._started is None else f"{len(self._taken)} taken"
        return f"<{type(self).__name__} {', '.join(map(repr, self._keys))}: {state}>"

    def _start(self) -> None:
        if self._started is not None:
            raise errors.SettingsError(f"{self!r} was entered before; call hold_all() again")
        timeout = self._options.get("timeout")
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._started = boot_time()

    def _waited(self) -> float:
        assert self._started is not None
        return boot_time() - self._started

    def _options_for_the_next(self) -> HoldOptions:
        if self._timeout is None:
            return self._options
        # With no time left it is one try: what is free may still be had, as at the end of any wait.
        return {**self._options, "timeout": max(self._timeout - self._waited(), 0.0)}

    def _in_all(self, error: errors.LockTimeout) -> errors.LockTimeout:
        """Return a timeout of one key with the time that we waited for all of them."""
        if self._timeout == 0:
            return error
        holder, ends = error.holder, error.expires_in
        return errors.LockTimeout(
            error.key, waited=self._waited(), holder=holder, expires_in=ends, position=error.position
        )


def first_of(problems: list[errors.HoldfastError]) -> errors.HoldfastError:
    """Return what is to be raised of all that was met on the way back: a loss, if there is one."""
    problems = problems[::-1]
    first = next((each for each in problems if isinstance(each, errors.LeaseLost)), problems[0])
    for each in problems:
        if each is not first:
            noted(first, each)
    return first
