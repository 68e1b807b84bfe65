"""What our sessions are set to, whatever the role, the database, the url or the environment has set.

This is the only place. Decision 0034 goes through all settings of PostgreSQL, and says of each why it is here
or need not be. Where a session is not ours alone, everything is set for one transaction at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from holdfast import errors


class SessionToSet(Protocol):
    """A session, as far as it is set here."""

    @property
    def pid(self) -> int: ...

    @property
    def version(self) -> int: ...

    def script(self, text: str) -> list[Any]:
        """Run a statement that has no parameters, and return its rows."""


# Nothing of ours may wait for long: others wait for us. A client that is paused in the middle of a
# transaction loses it, and with it its hold on the row. Statements are planned once (to do it each time took
# a third of their time), maybe while the tables are small: so each must go by its index from the start.
# And none is worth being compiled, whatever the planner makes of a limit that it does not know.
PINNED = {
    "client_encoding": "UTF8",
    "client_min_messages": "warning",  # a commit that no standby has confirmed is told by a warning only
    "default_transaction_isolation": "read committed",
    "synchronous_commit": "on",  # at least: see _STRONGER
    "lock_timeout": "500ms",
    "statement_timeout": "8s",
    "idle_in_transaction_session_timeout": "3s",
    "row_security": "off",  # an error where a policy would hide rows from us
    "standard_conforming_strings": "on",
    "exit_on_error": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
SINCE = {
    140000: {"idle_session_timeout": "0"},  # a listener is idle for hours
    170000: {"transaction_timeout": "0"},
}
_STRONGER = "remote_apply"  # than what we ask for in synchronous_commit: let it be
# Since PostgreSQL 14, and not on every system.
DETECT_GONE = ("client_connection_check_interval", "2s")
UTF8 = "UTF8"
ASCII = "SQL_ASCII"


def pins(version: int) -> dict[str, str]:
    """Return what is set on a server of this *version*."""
    later = (pins for since, pins in SINCE.items() if version >= since)
    return {**PINNED, **{name: value for pins in later for name, value in pins.items()}}


def setting(version: int, local: str) -> str:
    """Return the statement that sets it all: for the transaction if *local*, an expression, is true."""
    values = {name: f"'{value}'" for name, value in pins(version).items()}
    values["synchronous_commit"] = (
        f"CASE current_setting('synchronous_commit') WHEN '{_STRONGER}' THEN '{_STRONGER}' ELSE 'on' END"
    )
    return "SELECT " + ", ".join(f"set_config('{name}', {value}, {local})" for name, value in values.items())


def is_shared(pid: int, *, keeps: bool) -> str:
    """Return the expression that is true if somebody else answers than we connected to, which is *pid*.

    Then there is a pooler, and others will use its sessions; unless it *keeps* them apart.
    """
    return "false" if keeps else f"pg_backend_pid() <> {pid}"


def pin(session: SessionToSet, *, keeps: bool) -> bool:
    """Set up a session that is ours, and return True; nothing is set if others will use it."""
    local = is_shared(session.pid, keeps=keeps)
    *_, elsewhere = session.script(f"{setting(session.version, local)}, {local}")[0]
    if elsewhere != b"f":
        return False
    name, value = DETECT_GONE
    with suppress(errors.StoreError):
        session.script(f"SET {name} = '{value}'")
    return True


def overridden(session: SessionToSet) -> dict[str, tuple[str, str]]:
    """Return which settings somebody has set otherwise: what they are, and what we make of them.

    The session must be one that sets nothing by itself. Nothing stays in it, whoever uses it next.
    """
    names = ", ".join(f"'{name}'" for name in pins(session.version))
    ask = f"SELECT name, current_setting(name), source FROM pg_settings WHERE name IN ({names})"  # noqa: S608
    session.script("BEGIN")
    try:
        before = session.script(ask)
        session.script(setting(session.version, "true"))
        after = {name: value for name, value, _ in session.script(ask)}
    finally:
        with suppress(errors.StoreError):
            session.script("ROLLBACK")
    return {
        (name or b"").decode(): ((value or b"").decode(), (after[name] or b"").decode())
        for name, value, source in before
        if source != b"default" and value != after[name]
    }


def encoding_remark(encoding: str) -> str:
    """Say what cannot work in a database of this encoding; nothing if everything can."""
    if encoding == UTF8:
        return ""
    characters = "other than ASCII" if encoding == ASCII else f"that {encoding} does not have"
    return (
        f"the database has the encoding {encoding}: keys, owners, reasons and results with characters"
        f" {characters} are refused. For all of them use a database that was created with ENCODING 'UTF8'"
    )
