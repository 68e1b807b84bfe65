"""The rights that are printed, and that the how-to pages show, are enough: all is done with them."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import DeadlockDetected, Holdfast, StoreMisconfigured
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.data import replace
from holdfast.core.requests import Sweep
from holdfast.stores import open_store, open_tables
from holdfast.stores.base import StoreOptions
from holdfast.testing.conformance import CLIENT
from tests.clients.support import PATIENCE, QUICK, eventually
from tests.faults.conftest import SERVERS
from tests.servers.fixtures import with_tables

PAGES = Path(__file__).parents[2] / "docs" / "howto"


@pytest.mark.parametrize(("page", "scheme"), [("postgresql.md", "postgresql://"), ("mysql.md", "mysql://")])
def test_the_pages_show_what_is_granted(page: str, scheme: str) -> None:
    text = (PAGES / page).read_text("utf-8")
    shown = re.search(r"\$ holdfast schema grants app \S+\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    tables = open_tables(f"{scheme}owner@db.internal/app", StoreOptions(CLIENT))
    assert shown[1] == tables.grants("app", serving=False)


@pytest.fixture(params=SERVERS)
def account(request: pytest.FixtureRequest) -> Account:
    """A database with tables, as an account sees it that has the rights of the page."""
    return Account(request, request.param)


class Account:
    """Somebody who uses a database, with the rights that are printed for it."""

    def __init__(self, request: pytest.FixtureRequest, store: str) -> None:
        self._store = store
        self._server = request.getfixturevalue(f"{store}_server")
        owned = request.getfixturevalue(f"{store}_url")
        with_tables(owned)
        self._database = urlsplit(owned).path[1:]
        self._name = f"client_{self._database[-8:]}"
        self._server.execute(
            f"CREATE ROLE {self._name} LOGIN" if store == "postgres" else f"CREATE USER {self._name}@'%'"
        )
        self.url = owned.replace("holdfast@", f"{self._name}@")
        self._tables = open_tables(owned, StoreOptions(CLIENT))
        self.grant(serving=False)

    def grant(self, *, serving: bool) -> None:
        for statement in self._tables.grants(self._name, serving=serving).splitlines():
            self._server.execute(statement, self._database)
        if self._store == "mariadb":
            self._server.execute("FLUSH PRIVILEGES")


def test_with_the_rights_that_are_printed_everything_can_be_done(account: Account) -> None:
    url = account.url
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

        _lease = one.acquire("stuck")
        assert one.break_lock("stuck", reason="a test")
        kinds = {event.kind for event in one.watch("*", after=0, timeout=1.0)}
        assert {"granted", "completed", "deadlocked", "broken", "resized"} <= kinds
        assert one.history("nightly")
        one.sweep()
        assert [view.key for view in one.list("night")] == ["nightly"]


def test_only_who_makes_access_tokens_needs_rights_for_them(account: Account) -> None:
    """A client that may not read them can still sweep; that would have removed those that have ended."""
    store = open_store(account.url, StoreOptions(CLIENT))
    store.open()
    granting = GrantAccess("5f1e00000001", "ci", "0" * 64, ("admin:*",), ttl=0.001)
    try:
        with pytest.raises(StoreMisconfigured):
            store.execute(granting)
        with pytest.raises(StoreMisconfigured):
            store.execute(ListAccess())
        store.execute(Sweep())
        account.grant(serving=True)
        store.execute(granting)
        kept = store.execute(replace(granting, id="5f1e00000002", ttl=None))
        assert store.execute(granting).expires_at is not None
        eventually(lambda: store.execute(ListAccess()) == (kept,))
        assert store.execute(RevokeAccess(kept.id)) == kept
    finally:
        store.close()
    again = open_store(account.url, StoreOptions(CLIENT))
    again.open()
    again.execute(Sweep())
    assert again.execute(RevokeAccess(granting.id)) is None
    again.close()
