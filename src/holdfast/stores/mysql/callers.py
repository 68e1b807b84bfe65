"""What a caller's transaction has to be like, so that what we do in it lasts until it ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.requests import Fence, Release, Request
from holdfast.errors import SettingsError
from holdfast.stores.mysql import failures
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.rules.columns import Row

TWO_PHASES = (
    "this is a two-phase transaction (XA), and XA PREPARE would end the fence: fence in an ordinary one, or"
    " raise the token of the lease on the resource (holdfast.raise_token)"
)
NEWEST_ONLY = (
    "the transaction is {level} with innodb_snapshot_isolation, and would fail as soon as the lease is"
    " renewed or somebody waits for it: use READ COMMITTED, or acquire before it and release after it"
)
# MySQL has only the second one. MariaDB has the last one, its newer versions all three.
VARIABLES = (
    "SHOW VARIABLES WHERE variable_name IN"
    " ('innodb_snapshot_isolation', 'transaction_isolation', 'tx_isolation')"
)
NO_SUCH_VARIABLE = 1193
UNKNOWN_XID = 1397


def check(theirs: Caller, request: Request[Any]) -> None:
    """Begin the transaction if nothing was done in it yet; else see that it is none in two phases.

    A savepoint from before the first look at a table takes all with it when it is rolled back to, our locks
    too, and the transaction goes on. Nobody can be asked whether there is one. To begin ends it, and rolling
    back to it is an error then. Where somebody else has begun already, that cannot be done. A release may be
    taken back, so it leaves savepoints alone.
    """
    if isinstance(request, Release):
        return
    if not _has_begun(theirs):
        theirs.execute("START TRANSACTION", {})
    elif isinstance(request, Fence) and _is_in_two_phases(theirs):
        raise SettingsError(TWO_PHASES)


def id_and_level(store_id: str, variables: Iterable[str]) -> str:
    """Return the statement *store_id* with what `check_level` needs, if the server has such *variables*."""
    known = set(variables)
    if "innodb_snapshot_isolation" not in known:
        return store_id
    level = "transaction_isolation" if "transaction_isolation" in known else "tx_isolation"
    return store_id.replace(
        "store_id", f"store_id, @@session.{level}, @@session.innodb_snapshot_isolation", 1
    )


def check_level(level: Row) -> None:
    """Raise `SettingsError` where InnoDB refuses to write what others have changed since the first read.

    It would roll back all of their transaction (1020). What is known is the level of the session. That of one
    transaction (SET TRANSACTION without SESSION) the server does not tell: then 1020 it is, or a refusal
    where it would have worked.
    """
    if len(level) > 1 and level[2] and level[1] in ("REPEATABLE-READ", "SERIALIZABLE"):
        raise SettingsError(NEWEST_ONLY.format(level=level[1].replace("-", " ")))


def _has_begun(theirs: Caller) -> bool:
    try:
        return bool(theirs.execute("SELECT @@in_transaction", {})[0][0])
    except Exception as error:
        if _number(error) == NO_SUCH_VARIABLE:  # MySQL does not tell
            return True
        raise


def _is_in_two_phases(theirs: Caller) -> bool:
    """Tell whether this is an XA transaction: only then to end one by another name fails as unknown."""
    try:
        theirs.execute("XA END 'holdfast'", {})
    except Exception as error:
        if _number(error) in failures.LOST:
            raise
        return _number(error) == UNKNOWN_XID
    return True


def _number(error: Exception) -> int:
    return failures.told(getattr(error, "orig", error))[0]  # SQLAlchemy wraps what the driver raised
