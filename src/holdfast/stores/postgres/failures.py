"""What PostgreSQL's errors mean for a request: one table, by SQLSTATE."""

from __future__ import annotations

from holdfast import errors
from holdfast.stores.base import not_made_yet
from holdfast.stores.sql.transactions.session import Conflict, RowLocked

READ_ONLY = "25006"
MISSING = ("3D000", "3F000", "42P01", "42883", "42501")  # database, schema, tables, functions, rights

# The first entry that a state begins with decides. Whenever the server sends an error, it has rolled back. So
# nothing here is unknown: that is only a line that breaks, or an answer that does not come.
_MEANINGS: dict[type[errors.StoreError], dict[str, str]] = {
    RowLocked: {"55P03": "the row stayed locked for longer than lock_timeout"},
    Conflict: {
        "40": "another transaction was in the way",  # serialization failure, deadlock
        "23505": "somebody else inserted the same row at the same moment",
    },
    errors.StoreUnavailable: {
        "57014": "the statement took longer than statement_timeout, or was cancelled",
        "57P0": "the server is shutting down or starting up",
        "57P": "the server ended the session",
        "25P0": "the transaction was ended by a timeout, or aborted",
        "08": "the connection failed",
        "53100": "the server's disk is full; free some space",
        "53300": "the server has no connections left; raise max_connections or use fewer",
        "53": "the server lacks resources",
        "58": "the server's disk failed; look at its log",
        READ_ONLY: "the server is a standby, or reads only; name all hosts in the url,"
        " target_session_attrs=read-write",
    },
    errors.StoreMisconfigured: {
        "22P05": "the database has no such character (use ENCODING 'UTF8'),"
        " or your client_encoding (set it to UTF8)",
        "28": "the server refuses the user or the password; check the url",
        "3D000": "there is no such database; create it, or check the url",
        "42501": "the role lacks a privilege; what to grant a client is printed by:"
        " holdfast schema grants ROLE URL",
    },
    errors.SchemaMismatch: {
        "42P01": "holdfast's tables are missing; run: holdfast schema apply URL",
        "3F000": "the schema is missing; run: holdfast schema apply URL",
        "42883": "holdfast's functions are missing; run: holdfast schema apply URL",
        "42703": "a column is missing: the tables are of another version",
    },
    errors.StoreCorrupt: {
        "XX001": "a table is damaged; look at the server's log",
        "XX002": "an index is damaged; reindex it",
    },
}

NO_SUCH_PREPARED = ("26000", "42P05", "0A000")  # also: a cached plan that does not fit any more


def translate(state: str, message: str) -> errors.StoreError:
    """Return our error for one of the server's."""
    for kind, meanings in _MEANINGS.items():
        for start, meaning in meanings.items():
            if state.startswith(start):
                error = kind(f"PostgreSQL: {meaning} ({state}: {message})")
                return not_made_yet(error) if start in MISSING else error
    unexpected = "PostgreSQL answered with an error that holdfast does not expect"
    return errors.StoreError(f"{unexpected} ({state}: {message})")


def lost(message: str, *, unknown: bool) -> errors.StoreError:
    """Return our error for a line that broke."""
    if unknown:
        return errors.OutcomeUnknown(f"PostgreSQL: the connection broke before the answer came ({message})")
    return errors.StoreUnavailable(f"PostgreSQL: the connection broke ({message})")
