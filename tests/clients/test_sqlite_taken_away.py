"""The file of a running client is moved away, deleted or replaced: it promises nothing more there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import AsyncHoldfast, Holdfast, LeaseLost, StoreMisconfigured
from holdfast.stores.sqlite import database, samefile
from tests.clients.support import PATIENCE, QUICK, eventually

REFUSED = "while it was in use"
LOOK_EVERY = database.LOOK_EVERY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path by way of a link, to a file in a directory of its own."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Holdfast(f"sqlite:///{tmp_path / 'real' / 'locks.db'}"):
        pass
    return tmp_path / "link" / "locks.db"


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on how fast it is: else what comes fast is looked at every few milliseconds."""
    monkeypatch.setattr(database, "LOOK_EVERY", 0.0)


def test_looking_is_never_put_off_for_long() -> None:
    """Late by so much, somebody may be granted what others have been granted in the new file."""
    assert LOOK_EVERY <= 0.01


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def move(path: Path) -> None:
    path.rename(path.with_name("old.db"))


def delete(path: Path) -> None:
    path.unlink()


def restore(path: Path) -> None:
    """Put a backup in its place, as is good practice: all at once."""
    backup = path.with_name("backup.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", [str(backup)])
    backup.rename(path)


def make_another(path: Path) -> None:
    move(path)
    path.with_name("locks.db-wal").unlink()
    path.with_name("locks.db-shm").unlink()
    with Holdfast(url_of(path)) as locks, locks.hold("another"):
        pass


def move_the_directory(path: Path) -> None:
    path.resolve().parent.rename(path.resolve().parent.with_name("moved"))


def lead_the_link_elsewhere(path: Path) -> None:
    link = path.parent
    (link.parent / "elsewhere").mkdir()
    with Holdfast(url_of(link.parent / "elsewhere" / "locks.db")):
        pass
    link.unlink()
    link.symlink_to(link.parent / "elsewhere")


def delete_the_log(path: Path) -> None:
    path.with_name("locks.db-wal").unlink()


def delete_the_index(path: Path) -> None:
    path.with_name("locks.db-shm").unlink()


WAYS = [
    move,
    delete,
    restore,
    make_another,
    move_the_directory,
    lead_the_link_elsewhere,
    delete_the_log,
    delete_the_index,
]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_granted_or_told_in_a_file_that_is_not_there_any_more(
    path: Path, way: Callable[[Path], None]
) -> None:
    with Holdfast(url_of(path)) as locks:
        lease = locks.acquire("nightly")
        way(path)
        with pytest.raises(StoreMisconfigured, match=REFUSED) as caught:
            locks.acquire("other", timeout=0)
        assert str(path.parent) in str(caught.value) or str(path.resolve().parent) in str(caught.value)
        assert "start them again" in str(caught.value)
        for ask in (lambda: locks.inspect("nightly"), lambda: list(locks.list()), lease.release):
            with pytest.raises(StoreMisconfigured, match=REFUSED):
                ask()


def test_looking_alone_notices_it_as_well(path: Path) -> None:
    with Holdfast(url_of(path)) as locks:
        assert locks.inspect("nightly") is None
        move(path)
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.inspect("nightly")


def test_what_was_granted_while_the_file_was_moved_is_not_told(path: Path) -> None:
    """The grant is committed, in a file that nobody else looks at."""
    with Holdfast(url_of(path)) as locks:
        real = locks._engine.store.sessions.database._connection

        class Moving:
            """A connection at which somebody moves the file just before a statement."""

            in_transaction = False

            def execute(self, *args: object) -> sqlite3.Cursor:
                move(path)
                return real.execute(*args)

            close = real.close

        locks._engine.store.sessions.database._connection = Moving()
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)
        with Holdfast(url_of(path)) as others, others.hold("nightly", timeout=0):
            pass


def test_it_is_refused_for_good_even_when_the_file_comes_back(path: Path) -> None:
    """Others may have used the path meanwhile, and nobody knows what they believe in."""
    with Holdfast(url_of(path)) as locks:
        move(path)
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)
        path.with_name("old.db").rename(path)
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)
        with Holdfast(url_of(path)) as again, again.hold("another", timeout=0):
            pass


def test_a_lease_in_it_ends_at_the_latest_with_its_ttl(path: Path) -> None:
    with Holdfast(url_of(path), settings=QUICK) as locks:
        lease = locks.acquire("nightly", ttl=1.0)
        move(path)
        eventually(lambda: lease._holding.kept.lost)
        with pytest.raises(LeaseLost):
            lease.check()


@pytest.mark.parametrize("way", [move, make_another])
def test_who_connects_anew_does_not_go_on_in_another_file(path: Path, way: Callable[[Path], None]) -> None:
    """After a fork, parent and child do; nor do they make a file where there is none."""
    with Holdfast(url_of(path)) as locks, Holdfast(url_of(path)):
        locks._engine.store.sessions.database.close()
        way(path)
        before = path.exists()
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)
        assert path.exists() == before


def test_another_file_with_the_same_number_is_another_file(path: Path) -> None:
    """File systems give the number of a deleted file to the next one."""
    with Holdfast(url_of(path)) as locks:
        locks._engine.store.sessions.database.close()
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE holdfast_meta SET store_id = 'another'")
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)


def test_a_callers_transaction_is_not_joined_either(path: Path) -> None:
    """Not even where it is in the same old file: what they commit there is lost as well."""
    with Holdfast(url_of(path)) as locks, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        lease = locks.acquire("nightly")
        theirs.execute("BEGIN IMMEDIATE")
        restore(path)
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            lease.fence(theirs)
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.try_acquire("other", within=theirs)


def test_a_relative_path_means_the_same_file_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Holdfast("sqlite:///locks.db") as locks:
        monkeypatch.chdir(os.sep)
        with locks.hold("nightly"):
            pass
        (tmp_path / "locks.db").unlink()
        with pytest.raises(StoreMisconfigured, match=REFUSED):
            locks.acquire("nightly", timeout=0)


def test_tasks_are_told_as_well(path: Path) -> None:
    async def use() -> None:
        async with AsyncHoldfast(url_of(path)) as locks:
            lease = await locks.acquire("nightly", timeout=PATIENCE)
            move(path)
            with pytest.raises(StoreMisconfigured, match=REFUSED):
                await locks.acquire("other", timeout=0)
            with pytest.raises(StoreMisconfigured, match=REFUSED):
                await lease.release()

    asyncio.run(use())


def test_a_vacuum_and_a_backup_change_nothing(path: Path) -> None:
    with Holdfast(url_of(path)) as locks:
        with closing(sqlite3.connect(path)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("VACUUM INTO ?", [str(path.with_name("backup.db"))])
        with locks.hold("nightly", timeout=0):
            pass


def test_who_looks_while_another_thread_connects_anew_does_not_compare_new_files_with_old_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one to close deletes the log. Before a fork, all connections are closed."""
    with Holdfast(url_of(path)) as locks:
        with locks.hold("nightly"):
            pass
        before = locks._engine.store.sessions.database
        for each in (before, locks._engine.store.sessions.reader.database):
            each.close()
        kept = [path.with_name(f"other-{number}") for number in range(8)]
        for other in kept:
            other.touch()  # so that the new log does not get the old one's number
        beside = samefile.SameFile.beside

        def looked_at(file: samefile.SameFile) -> samefile.Beside:
            before.look_again()
            return beside(file)

        monkeypatch.setattr(samefile.SameFile, "beside", looked_at)
        with locks.hold("nightly", timeout=0):
            pass


def test_who_looks_while_another_thread_closes_does_not_miss_what_that_deletes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Holdfast(url_of(path)) as locks:
        with locks.hold("nightly"):
            pass
        find = samefile.find

        def closing_it(name: str) -> samefile.Found | None:
            for each in (locks._engine.store.sessions.reader.database, locks._engine.store.sessions.database):
                each.close()
            return find(name)

        monkeypatch.setattr(samefile, "find", closing_it)
        locks._engine.store.sessions.database.look_again()
        monkeypatch.setattr(samefile, "find", find)
        with locks.hold("nightly", timeout=0):
            pass
