"""The rights that the how-to pages list are enough: read from there, granted, and all is done with them."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import DeadlockDetected, Holdfast
from tests.clients.support import PATIENCE, QUICK, eventually
from tests.faults.conftest import SERVERS
from tests.servers.fixtures import with_tables

PAGES = Path(__file__).parents[2] / "docs" / "howto"
NAMES = {"postgres": "postgresql.md", "mariadb": "mysql.md"}


def grants(store: str, database: str, account: str) -> list[str]:
    """Return what a page says that clients need, for this database and account."""
    text = (PAGES / NAMES[store]).read_text("utf-8")
    block = next(
        found for found in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "locks_client" in found
    )
    statements = re.sub(r"--.*", "", block).split(";")
    wanted = [each.strip() for each in statements if "locks_client" in each]
    return [
        re.sub(r"locks_client(@'%')?", account, each)
        .replace("DATABASE app", f"DATABASE {database}")
        .replace("app.", f"{database}.")
        for each in wanted
    ]


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """A database with tables, as an account sees it that has the rights of the page."""
    store = request.param
    server = request.getfixturevalue(f"{store}_server")
    owned = request.getfixturevalue(f"{store}_url")
    with_tables(owned)
    database = urlsplit(owned).path[1:]
    name = f"client_{database[-8:]}"
    account = name if store == "postgres" else f"{name}@'%'"
    server.execute(f"CREATE ROLE {name} LOGIN" if store == "postgres" else f"CREATE USER {account}")
    for statement in grants(store, database, account):
        server.execute(statement, database)
    if store == "mariadb":
        server.execute("FLUSH PRIVILEGES")
    return owned.replace("holdfast@", f"{name}@")


def test_with_the_rights_of_the_page_everything_can_be_done(url: str) -> None:
    with Holdfast(url, settings=QUICK, history="all") as one, Holdfast(url, settings=QUICK) as two:
        lease = one.acquire("nightly", owner="ann")
        waiting = threading.Thread(target=lambda: two.acquire("nightly", owner="bob").release())
        waiting.start()
        eventually(lambda: one.inspect("nightly").waiting == 1)
        lease.release()
        waiting.join(PATIENCE)
        two.acquire("gpu", permits=2, take=2).release()
        two.resize("gpu", 3)
        shared = two.acquire("table", owner="ann")
        shared.downgrade()
        shared.release()

        told: list[object] = []
        with one.operation("pull", "model", owner="ann") as pull:
            waiting = threading.Thread(
                target=lambda: told.append(two.run_once("pull:model", lambda: "again", owner="bob"))
            )
            waiting.start()
            eventually(lambda: one.inspect("pull:model").waiting == 1)
            pull.succeed("there")
        waiting.join(PATIENCE)
        assert told == ["there"]

        first, second = one.acquire("a", owner="ann"), two.acquire("b", owner="bob")
        waiting = threading.Thread(target=lambda: one.acquire("b", owner="ann").release())
        waiting.start()
        eventually(lambda: one.inspect("b").waiting == 1)
        with pytest.raises(DeadlockDetected):
            two.acquire("a", owner="bob")
        second.release()
        waiting.join(PATIENCE)
        first.release()

        one.acquire("stuck")
        assert one.break_lock("stuck", reason="a test")
        kinds = {event.kind for event in one.watch("*", after=0, timeout=1.0)}
        assert {"granted", "completed", "deadlocked", "broken", "resized"} <= kinds
        assert one.history("nightly")
        one.sweep()
        assert [view.key for view in one.list("night")] == ["nightly"]
