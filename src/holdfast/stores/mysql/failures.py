"""What errors of MySQL and MariaDB mean for a request: one table, by number."""

from __future__ import annotations

from holdfast import errors
from holdfast.stores.base import not_made_yet
from holdfast.stores.sql.transactions.session import Conflict, RowLocked


class Interrupted(errors.StoreUnavailable):
    """Somebody sent KILL QUERY. To a listener that is good news."""


class TookTooLong(errors.StoreUnavailable):
    """A statement was ended by the server because it took longer than it may."""


class NotPrepared(errors.StoreUnavailable):
    """The server has not, or will not have, a statement ready for us. Nothing of it was done that lasts."""


LOST = (0, 2006, 2013, 2055)  # the driver's own: there is no line any more
NOT_OWNER = 1095  # of a KILL
MISSING = (1044, 1046, 1049, 1142, 1143, 1146, 1227, 1370)  # database, rights, tables
READ_ONLY = (1290, 1836, 1792, 3100)
REFUSED = (1045, 1698, 1130, 1524, 2059, 2061, 3118, 3159, 1862, 1820)
DAMAGED = (1194, 1195, 1034, 1035, 1033, 126, 127, 134, 144, 145, 1712, 1877)
# After these the server closes the line, and whether it has committed before is not for us to guess.
CLOSING = (1053, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1927, 3169, 4031)

_GRANTS = "what to grant to a client is printed by: holdfast schema grants ACCOUNT URL"

_MEANINGS: dict[type[errors.StoreError], dict[tuple[int, ...], str]] = {
    Conflict: {
        # Deadlocks, of rows and of named locks; the row has changed since.
        (1213, 3058, 1020): "another transaction was in the way",
        (1062,): "somebody else inserted the same row at the same moment",
    },
    RowLocked: {(1205,): "the row stayed locked for longer than innodb_lock_wait_timeout"},
    # There are too many; there is none of that name; this version has none like it; it was out of date.
    NotPrepared: {(1461, 1243, 1295, 1615): "the server has no prepared statement for us"},
    Interrupted: {(1317,): "the statement was interrupted"},
    TookTooLong: {(1969, 3024): "the statement took longer than it may"},
    errors.StoreUnavailable: {
        (1040, 1203, 1226, 1135, 1041): "the server has no connections or resources left;"
        " raise max_connections or use fewer",
        CLOSING: "the server is shutting down, or ended the session",
        READ_ONLY: "the server is read-only: a replica, or one that is being moved",
        (1021, 1114, 1026): "the server's disk is full; free some space",
        (1129, 1047): "the server accepts nothing from here now",
    },
    errors.StoreMisconfigured: {
        REFUSED: "the server refuses the user or the password; check the url",
        (1044,): f"the account has no rights in this database, or there is none of that name; {_GRANTS}",
        (1049, 1046): "there is no such database; create it, or check the url",
        (1142, 1143, 1227, 1370): f"the account lacks a privilege; {_GRANTS}",
        (1665,): "the binary log needs binlog_format = ROW or MIXED",
    },
    errors.SchemaMismatch: {
        (1146,): "holdfast's tables are missing; run: holdfast schema apply URL",
        (1054,): "a column is missing: the tables are of another version",
    },
    errors.StoreCorrupt: {DAMAGED: "a table or an index is damaged; look at the server's log"},
}
_BY_NUMBER = {
    number: (kind, meaning)
    for kind, meanings in _MEANINGS.items()
    for numbers, meaning in meanings.items()
    for number in numbers
}


def translate(number: int, message: str) -> errors.StoreError:
    """Return our error for one of the server's."""
    unexpected = "the server answered with an error that holdfast does not expect"
    kind, meaning = _BY_NUMBER.get(number, (errors.StoreError, unexpected))
    error = kind(f"MySQL: {meaning} ({number}: {message})")
    return not_made_yet(error) if number in MISSING else error


def lost(message: str, *, unknown: bool) -> errors.StoreError:
    """Return our error for a line that broke."""
    if unknown:
        return errors.OutcomeUnknown(f"MySQL: the connection broke before the answer came ({message})")
    return errors.StoreUnavailable(f"MySQL: the connection broke ({message})")


def told(error: Exception) -> tuple[int, str]:
    """Return the number and the text of a driver's error; 0 if it has none."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return number, str(error.args[-1] if error.args else error)


def refused(number: int, message: str) -> errors.StoreError:
    """Return our error for a connection that did not come about."""
    if number in _BY_NUMBER:
        return translate(number, message)
    return errors.StoreUnavailable(f"MySQL: cannot connect ({message})")
