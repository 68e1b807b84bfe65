"""Every variable that a session can have was judged in decision 0034, and what is pinned there is pinned."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.stores.mysql import variables as mysql
from holdfast.stores.postgres import variables as postgres
from tests.servers import MariaDBServer, PostgresServer

PAGE = Path(__file__).parents[2] / "docs/decisions/0034-what-a-session-is-set-to.md"
PINNED_BESIDE = {
    "PostgreSQL": {"client_connection_check_interval", "default_table_access_method"},
    "MariaDB and MySQL": {
        # By SET TRANSACTION, SET NAMES and SET timestamp; the last follows from sql_big_selects.
        *("tx_isolation", "transaction_isolation", "tx_read_only", "transaction_read_only"),
        *("character_set_client", "character_set_connection", "character_set_results"),
        *("collation_connection", "timestamp", "max_join_size"),
    },
}


def judged(database: str) -> dict[str, str]:
    """Return the verdict on each variable."""
    _, section = PAGE.read_text().split(f"## {database}\n")
    rows = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {name: verdict for names, verdict in rows for name in re.findall(r"`(\w+)`", names)}


def pinned(database: str) -> set[str]:
    said = {name for name, verdict in judged(database).items() if verdict.startswith("pinned")}
    return said - PINNED_BESIDE[database]


def test_every_setting_of_the_installed_postgresql_was_judged(postgres_server: PostgresServer) -> None:
    rows = postgres_server.execute(
        "SELECT name FROM pg_settings"
        " WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend') AND name NOT LIKE '%.%'"
    )
    assert {name for (name,) in rows} - set(judged("PostgreSQL")) == set()


def test_every_session_variable_of_the_installed_mariadb_was_judged(mariadb_server: MariaDBServer) -> None:
    rows = mariadb_server.execute(
        "SELECT lower(variable_name) FROM information_schema.system_variables"
        " WHERE variable_scope LIKE 'SESSION%'"
    )
    assert {name for (name,) in rows} - set(judged("MariaDB and MySQL")) == set()


def test_what_the_page_calls_pinned_is_what_is_pinned() -> None:
    assert pinned("PostgreSQL") == set(postgres.pins(170000))
    names = {*mysql.PINNED, *mysql.IF_KNOWN}
    names |= {name for each in (mysql.BOUNDS, mysql.LISTENING) for pins in each.values() for name in pins}
    assert pinned("MariaDB and MySQL") == names
