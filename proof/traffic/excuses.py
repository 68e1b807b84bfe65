"""Which errors of a worker a fault explains, or what other workers do. All others are complaints."""

from __future__ import annotations

import sqlite3

from holdfast import errors

# These a fault cannot explain: the data are damaged, somebody does not understand somebody else, or something
# is set up wrongly. Nor can it explain a circle: an owner of this traffic has one key at a time, and so never
# waits for another while it holds one. `DeadlockDetected` is no `StoreError`, and is not expected either.
_NEVER = (
    errors.SchemaMismatch,
    errors.StoreMisconfigured,
    errors.TooManyRequests,
    errors.StoreCorrupt,
    errors.AccessDenied,
    errors.LimitExceeded,
    errors.RequestRefused,
)
_DRIVERS = ("psycopg", "pymysql")
_OF_THE_CONNECTION = ("OperationalError", "InterfaceError", "InternalError")


class Planned(Exception):
    """An operation fails because its turn wants it to."""


def explains(error: BaseException) -> bool:
    """Tell whether there is an excuse for what the library has raised."""
    expected = (
        errors.StoreError,
        errors.LockTimeout,
        errors.LeaseLost,
        errors.OperationFailed,
        Planned,
    )
    return isinstance(error, expected) and not isinstance(error, _NEVER)


def is_drivers(error: BaseException) -> bool:
    """Tell whether a connection to a resource has failed, or what is behind it: not that it was misused."""
    return isinstance(error, sqlite3.OperationalError | ConnectionError | TimeoutError) or any(
        kind.__module__.partition(".")[0] in _DRIVERS and kind.__name__ in _OF_THE_CONNECTION
        for kind in type(error).__mro__
    )
