"""Servers whose settings for the account of the locks are as bad as a DBA can make them.

Whoever looks after the server (``postgres``, ``root``) is left alone: fixtures work as ever.
"""

from __future__ import annotations

from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import OWNER as POSTGRES_OWNER
from tests.servers.postgres import PostgresServer

# For the role. Each either changes what a statement means, or ends it, unless our sessions say otherwise.
POSTGRES = {
    "client_encoding": "LATIN1",
    "client_min_messages": "error",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "lock_timeout": "1ms",
    "statement_timeout": "5s",
    "idle_in_transaction_session_timeout": "5s",
    "idle_session_timeout": "5s",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "exit_on_error": "on",
    "array_nulls": "off",
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "plan_cache_mode": "force_custom_plan",
    "jit_above_cost": "0",
    "from_collapse_limit": "1",
    "join_collapse_limit": "1",
    "constraint_exclusion": "on",
    "synchronize_seqscans": "on",
    "default_toast_compression": "pglz",
    "track_activities": "off",
}
# The server's own, which our sessions leave as they are.
SWITCHES = (
    "semijoin=off,derived_merge=off,exists_to_in=off,index_condition_pushdown=off,mrr=on,mrr_sort_keys=on"
)
# Set for each session that is not a superuser's.
MARIADB = {
    "completion_type": "CHAIN",
    "sql_select_limit": "1",
    "sql_mode": "'ANSI,ORACLE,SIMULTANEOUS_ASSIGNMENT,EMPTY_STRING_IS_NULL,NO_BACKSLASH_ESCAPES,"
    "HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION,IGNORE_SPACE'",
    "tx_isolation": "'SERIALIZABLE'",
    "tx_read_only": "1",
    "autocommit": "0",
    "time_zone": "'+05:45'",
    "timestamp": "1",
    "sql_safe_updates": "1",
    "max_join_size": "1",
    "sql_big_selects": "0",
    "sql_auto_is_null": "1",
    "unique_checks": "0",
    "foreign_key_checks": "0",
    "check_constraint_checks": "0",
    "group_concat_max_len": "4",
    "div_precision_increment": "0",
    "max_sort_length": "64",
    "max_error_count": "0",
    "innodb_lock_wait_timeout": "0",
    "lock_wait_timeout": "0",
    "innodb_snapshot_isolation": "1",
    "idle_write_transaction_timeout": "1",
    "idle_readonly_transaction_timeout": "1",
    "max_statement_time": "5",
    "query_cache_type": "1",
    "sql_buffer_result": "1",
    "low_priority_updates": "1",
    "default_storage_engine": "MyISAM",
    "default_week_format": "7",
    "old_mode": "'ZERO_DATE_TIME_CAST,NO_PROGRESS_INFO'",
    "lc_messages": "'de_DE'",
    "lc_time_names": "'de_DE'",
    "optimizer_switch": "'materialization=off'",
    "sql_if_exists": "1",
}


class HostilePostgres(PostgresServer):
    """A PostgreSQL server that has `POSTGRES` for the role of the locks."""

    def start(self) -> None:
        super().start()
        for name, value in POSTGRES.items():
            self.execute(f"ALTER ROLE {POSTGRES_OWNER} SET {name} = '{value}'")


class HostileMariaDB(MariaDBServer):
    """A MariaDB server that has `MARIADB` for everybody but root, in another character set and database."""

    def __init__(self) -> None:
        # Otherwise a client's wish for a character set would be heard, and query_cache_type refused.
        handshake = {"skip_character_set_client_handshake": 1, "query_cache_type": 1}
        super().__init__(settings={**handshake, "optimizer_switch": SWITCHES})

    def start(self) -> None:
        super().start()
        assignments = ", ".join(f"{name} = {value}" for name, value in MARIADB.items())
        bad = f"SET NAMES latin1; SET SESSION {assignments}; USE information_schema; START TRANSACTION"
        self.execute(f'SET GLOBAL init_connect = "{bad}"')
