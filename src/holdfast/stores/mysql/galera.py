"""One node of a Galera cluster at a time. Row locks and wake-ups are a node's own: see decision 0035.

Nobody's lock, the row with an empty key, says which node is in use, and when that was last looked at. Each
new connection looks, and none is used for longer than `VALID` without. So a node that was not looked at for
`LEASE` has nobody at work on it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.core.data import data
from holdfast.errors import SchemaMismatch, SettingsError, StoreError, StoreMisconfigured, StoreUnavailable
from holdfast.stores.sql.transactions.session import Conflict

if TYPE_CHECKING:
    from holdfast.stores.mysql.session import MySQLSession
    from holdfast.stores.sql.callers.connections import Caller

VALID = 3.0  # seconds
LEASE = 10.0  # seconds; longer by more than clocks of nodes differ, and than a statement may take
FRESH = 1.0  # seconds within which nobody need write that a node is in use
TRIES = 4

IS_ON = "(SELECT variable_value FROM information_schema.global_variables WHERE variable_name = 'WSREP_ON')"
_STATUS = "(SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{}')"
_NODE, _SIZE = _STATUS.format("WSREP_GCOMM_UUID"), _STATUS.format("WSREP_CLUSTER_SIZE")
_NAME = "concat(@@wsrep_node_name, ' (', @@hostname, ':', @@port, ')')"
_NOW = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
_UUID = re.compile(r"^[0-9a-f-]{36}$")


@data
class Sight:
    """What one connection sees: its own node, and the one in use."""

    node: str
    name: str
    size: int  # of the cluster
    used: str  # empty: none yet
    used_name: str
    used_at: int  # microseconds
    age: float  # seconds since
    held: bool  # somebody holds a lock


def may_use(sight: Sight, *, is_member: bool | None) -> bool:
    """Decide whether this node may be used. *is_member*: the one in use is there; None: nobody knows."""
    if sight.used in ("", sight.node) or sight.size == 1 or is_member is False:
        return True
    return sight.age > LEASE and not sight.held


def use(session: MySQLSession, locks: str) -> str:
    """Note that the node of this connection is in use, and return it; raise `OtherNode` if another one is.

    *locks* is the table of locks. Without tables there is nothing to be kept apart.
    """
    # Until this node knows all that was committed before, it would answer by what was.
    session.script("SET SESSION wsrep_sync_wait = 1, wsrep_dirty_reads = OFF")
    try:
        for _ in range(TRIES):
            sight = _look(session, locks)
            asks = sight.used not in ("", sight.node)
            if not may_use(sight, is_member=_is_member(session, sight.used) if asks else True):
                raise OtherNode(sight)
            if (sight.used == sight.node and sight.age < FRESH) or _note(session, locks, sight):
                return sight.node
        raise StoreUnavailable("Galera: somebody else began to use a node at the same moment; try again")
    except SchemaMismatch:
        return ""
    finally:
        session.script("SET SESSION wsrep_sync_wait = DEFAULT")


def check_caller(caller: Caller, node: str) -> None:
    """Raise `SettingsError` if a caller's connection is to another node than our own."""
    caller.check()
    ((theirs,),) = caller.execute(f"SELECT {_NODE}", {})
    if theirs != node:
        raise SettingsError(
            f"the connection is to another node of the Galera cluster ({theirs}) than the locks ({node}), and"
            " a fence does not cross nodes: have both go to one node"
        )


class OtherNode(StoreMisconfigured):
    """Another node of the cluster is in use."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(
            f"Galera: this connection is to {sight.name}, and holdfast uses {sight.used_name}, last seen"
            f" {sight.age:.0f} s ago. Row locks and wake-ups do not cross nodes: let all clients, and all"
            " transactions that fence, go to one node. Another one can be used when that one has left the"
            f" cluster, or {LEASE:g} s after its last use if no lock is held. To be told at once that it has"
            " left takes SELECT on mysql.wsrep_cluster_members"
        )


def _look(session: MySQLSession, locks: str) -> Sight:
    rows = session.script(
        f"SELECT {_NODE}, {_NAME}, {_SIZE}, l.instance, l.host, l.granted_at, {_NOW} - l.granted_at,"  # noqa: S608
        f" EXISTS (SELECT 1 FROM {locks} WHERE held_until > {_NOW})"
        f" FROM (SELECT 1) AS once LEFT JOIN {locks} AS l ON l.lock_key = ''"
    )
    ((node, name, size, used, used_name, used_at, age, held),) = rows
    return Sight(
        node, name, int(size), used or "", used_name or "", used_at or 0, (age or 0) / 1e6, bool(held)
    )


def _is_member(session: MySQLSession, node: str) -> bool | None:
    try:
        rows = session.script(
            f"SELECT 1 FROM mysql.wsrep_cluster_members WHERE node_uuid = '{_checked(node)}'"  # noqa: S608
        )
    except StoreError:  # no right to look, or no such table
        return None
    return bool(rows)


def _note(session: MySQLSession, locks: str, sight: Sight) -> bool:
    """Write that our node is in use, unless somebody has written since."""
    node = _checked(sight.node)
    try:
        if not sight.used and not sight.used_at:
            session.script(
                f"INSERT IGNORE INTO {locks} (lock_key, token, expires_at, granted_at, instance, host, pid)"  # noqa: S608
                " VALUES ('', 1, 0, 0, '', '', 0)"
            )
        return bool(
            session.script(
                f"UPDATE {locks} FORCE INDEX (PRIMARY)"  # noqa: S608
                f" SET instance = '{node}', host = {_NAME}, granted_at = {_NOW}"
                f" WHERE lock_key = '' AND granted_at = {sight.used_at}"
            )
        )
    except Conflict:  # through two nodes at once: one of them is rolled back
        return False


def _checked(node: str) -> str:
    if not _UUID.match(node):
        raise StoreMisconfigured(f"Galera: the server reports the node id {node!r}, which is not a UUID")
    return node
