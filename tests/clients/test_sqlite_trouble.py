# ruff: noqa: PT012
"""An SQLite file in trouble: the right error, what to do about it, nothing left locked, and back to work."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    HoldfastError,
    OutcomeUnknown,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from holdfast.core.data import replace
from holdfast.stores.sqlite import lockers
from tests.clients.support import PATIENCE, QUICK, eventually

told_by_the_system = pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="this system does not list who has locked which file"
)


def url_of(path: Path, busy_timeout: float = 0.2) -> str:
    return f"sqlite:///{path}?busy_timeout={busy_timeout}"


def take(url: str, *, timeout: float = 0) -> None:
    """Open, take a lock, give it back, close."""
    with Holdfast(url) as locks, locks.hold("nightly", timeout=timeout):
        pass


def make(path: Path) -> None:
    take(url_of(path))


def count_locked(path: Path) -> int:
    with sqlite3.connect(path) as db:
        (held,) = db.execute("SELECT count(*) FROM holdfast_locks WHERE owner IS NOT NULL").fetchone()
        (waiting,) = db.execute("SELECT count(*) FROM holdfast_tickets").fetchone()
    db.close()
    return int(held) + int(waiting)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a file system of our own. Root can write to what is read-only for others, but not to this."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "holdfast-test", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("missing: root and mount, for a file system that is full or read-only")
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("missing: the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change how it is mounted. What was closed a moment ago may keep it busy for another one."""
    command = ["mount", "-o", f"remount,{options}", str(folder)]
    eventually(lambda: subprocess.run(command, capture_output=True).returncode == 0, f"remounted {options}")


# A path that leads nowhere.


def nowhere(folder: Path) -> Path:
    return folder / "no" / "such" / "directory" / "locks.db"


def directory(folder: Path) -> Path:
    (folder / "locks.db").mkdir()
    return folder / "locks.db"


def no_database(folder: Path) -> Path:
    (folder / "locks.db").write_bytes(b"this is not a database. " * 100)
    return folder / "locks.db"


def under_a_file(folder: Path) -> Path:
    (folder / "file").write_text("a file")
    return folder / "file" / "locks.db"


def from_the_future(folder: Path) -> Path:
    make(folder / "locks.db")
    with sqlite3.connect(folder / "locks.db") as db:
        db.execute("UPDATE holdfast_meta SET version = 99")
    db.close()
    return folder / "locks.db"


def versionless(folder: Path) -> Path:
    make(folder / "locks.db")
    with sqlite3.connect(folder / "locks.db") as db:
        db.execute("DELETE FROM holdfast_meta")
    db.close()
    return folder / "locks.db"


def corrupt(folder: Path) -> Path:
    path = folder / "locks.db"
    make(path)
    content = bytearray(path.read_bytes())
    content[100:] = os.urandom(len(content) - 100)  # the header says SQLite, the rest is noise
    path.write_bytes(bytes(content))
    return path


CASES: dict[str, tuple[Callable[[Path], Path], type[StoreError], str]] = {
    "a missing directory": (nowhere, StoreMisconfigured, "check that the directory exists"),
    "a directory": (directory, StoreMisconfigured, "it is a directory, not a file"),
    "a file as a directory": (under_a_file, StoreMisconfigured, "check that the directory exists"),
    "no database": (no_database, StoreCorrupt, "is the path right?"),
    "noise": (corrupt, StoreCorrupt, "move it away"),
    "version 99": (from_the_future, SchemaMismatch, "version 99; this release knows 1 to"),
    "no version": (versionless, SchemaMismatch, "version None"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_cannot_be_used_says_why_at_once(tmp_path: Path, case: str) -> None:
    prepare, error, advice = CASES[case]
    path = prepare(tmp_path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error) as caught:
        Holdfast(url_of(path))
    assert isinstance(caught.value, HoldfastError)
    assert str(path) in str(caught.value)
    assert advice in str(caught.value)
    if before is not None:
        assert path.read_bytes() == before, "what we do not understand we do not touch"


@pytest.mark.parametrize("case", CASES)
def test_tasks_are_told_as_well(tmp_path: Path, case: str) -> None:
    import asyncio

    prepare, error, advice = CASES[case]
    path = prepare(tmp_path)

    async def enter() -> None:
        async with AsyncHoldfast(url_of(path)):
            raise AssertionError("not reached")

    async def use() -> None:
        locks = AsyncHoldfast(url_of(path))
        try:
            await locks.acquire("nightly", timeout=0)
        finally:
            await locks.close()

    for way in (enter, use):
        with pytest.raises(error) as caught:
            asyncio.run(way())
        assert advice in str(caught.value)


@pytest.mark.parametrize("case", ["a missing directory", "a directory", "no database", "version 99"])
def test_a_file_that_is_put_right_can_be_used(tmp_path: Path, case: str) -> None:
    path = CASES[case][0](tmp_path)
    with pytest.raises(StoreError):
        take(url_of(path))
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    take(url_of(path))


def test_a_device_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        take("sqlite:////dev/null")


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "locks.db").touch()
    take(url_of(tmp_path / "locks.db"))


def test_a_database_of_somebody_else_is_shared_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
        db.execute("INSERT INTO mine VALUES (1)")
    take(url_of(path))
    assert db.execute("SELECT x FROM mine").fetchall() == [(1,)]
    db.close()


# Rights.

UNREADABLE = """
    import os, sys
    import sqlite3  # all imports while we still may
    from holdfast import Holdfast, StoreMisconfigured
    import holdfast.stores.sqlite
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    try:
        Holdfast(sys.argv[1])
    except StoreMisconfigured as error:
        print(error)
"""


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_file_that_we_may_not_use_says_so(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "locks.db"
    make(path)
    path.chmod(mode)
    for folder in tmp_path.parents:
        with suppress(OSError):
            if folder.stat().st_uid == os.geteuid() and str(folder) != "/":
                folder.chmod(folder.stat().st_mode | 0o011)
    tmp_path.chmod(0o555)
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNREADABLE), url_of(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    assert told.returncode == 0, told.stderr
    assert str(path) in told.stdout
    assert "writ" in told.stdout or "access" in told.stdout, told.stdout


def test_a_read_only_file_system_says_so_and_can_be_used_when_it_is_writable_again(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=4m") as disk:
        path = disk / "locks.db"
        make(path)
        remount(disk, "ro")
        with pytest.raises(StoreMisconfigured, match="writ"):
            take(url_of(path))
        with pytest.raises(StoreMisconfigured, match="writ"):
            take(url_of(disk / "new.db"))
        remount(disk, "rw")
        take(url_of(path))
        assert count_locked(path) == 0


def test_a_client_survives_a_file_system_that_is_read_only_for_a_while(tmp_path: Path) -> None:
    """A mount cannot be made read-only while a file is open for writing, so the file is frozen instead."""
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path)) as locks:
        with locks.hold("nightly"):
            pass
        locks._engine.store.sessions.database.close()  # as after a fork: it connects anew
        frozen = [path, tmp_path / "locks.db-wal", tmp_path / "locks.db-shm", tmp_path]
        frozen = [each for each in frozen if each.exists()]
        if subprocess.run(["chattr", "+i", *frozen], capture_output=True).returncode != 0:
            pytest.skip("missing: chattr +i, to make a file read-only for root")
        try:
            with pytest.raises(StoreError) as caught:
                locks.acquire("nightly", timeout=0)
            assert str(path) in str(caught.value)
        finally:
            subprocess.run(["chattr", "-i", *reversed(frozen)], check=True)
        with locks.hold("nightly", timeout=0):
            pass
        assert count_locked(path) == 0


# Space.


def fill(disk: Path) -> Path:
    """Use up all the space that is left."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return disk / "filler"


def test_a_full_disk_is_told_and_everything_works_when_there_is_space_again(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        path = disk / "locks.db"
        with Holdfast(url_of(path)) as locks:
            first = locks.acquire("first", ttl=60)
            filler = fill(disk)
            with pytest.raises(StoreError) as caught:
                for n in range(2000):  # until the log has to grow
                    locks.acquire(f"key-{n:04}" + "x" * 200, timeout=0)
            assert isinstance(caught.value, StoreUnavailable | OutcomeUnknown)
            assert "space" in str(caught.value) or "disk" in str(caught.value)
            first.check()
            filler.unlink()
            with locks.hold("after", timeout=0):
                pass
            first.release()
            held = [view.key for view in locks.list(state="held")]
            assert "first" not in held
            assert "after" not in held
        assert count_locked(path) == 0


def test_a_waiter_survives_a_full_disk(tmp_path: Path) -> None:
    """It asks again until its deadline, and is granted when there is space."""
    with mounted(tmp_path / "disk", "size=1m") as disk, Holdfast(url_of(disk / "locks.db")) as locks:
        filler = fill(disk)
        with suppress(StoreError):
            for n in range(2000):
                locks.acquire(f"key-{n:04}" + "x" * 200, timeout=0)
        timer = threading.Timer(0.3, filler.unlink)
        timer.start()
        with locks.hold("nightly" + "x" * 200, timeout=PATIENCE):
            pass
        timer.join()


# Another process that keeps the file locked.

WRITER = """
    import sqlite3, sys
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    print("locked", flush=True)
    sys.stdin.readline()
    db.execute("ROLLBACK")
    print("free", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_writer(path: Path) -> Iterator[Callable[[], None]]:
    """Let another process have a write transaction open; yields what ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"

        def end() -> None:
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            assert process.stdout.readline() == "free\n"  # type: ignore[union-attr]

        yield end
        process.kill()


def test_a_writer_that_takes_longer_than_we_wait_makes_the_store_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path, 0.2)) as locks, another_writer(path) as end:
        with pytest.raises(StoreUnavailable, match="keeps it locked"):
            locks.acquire("nightly", timeout=0)
        assert locks.inspect("nightly") is None  # reading goes on
        end()
        with locks.hold("nightly", timeout=0):
            pass
        assert count_locked(path) == 0


@told_by_the_system
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_another_process_that_keeps_the_file_locked_is_named(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "locks.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA journal_mode = {journal}")
    with another_writer(path) as end:
        (pid,) = lockers.lockers(path)
        assert pid != os.getpid()
        with pytest.raises(StoreUnavailable, match=f"another process keeps it locked: pid {pid}$"):
            Holdfast(url_of(path, 0.1))
        end()
        assert lockers.lockers(path) == set()


@told_by_the_system
@pytest.mark.parametrize("where", ["here", "in another thread"])
def test_a_transaction_of_the_same_process_is_not_called_another_process(tmp_path: Path, where: str) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path, 0.1)) as locks:
        theirs = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        begin = threading.Thread(target=theirs.execute, args=("BEGIN IMMEDIATE",))
        begin.start() if where == "in another thread" else begin.run()
        if begin.ident:
            begin.join(PATIENCE)
        with pytest.raises(StoreUnavailable, match="another connection of this same process"):
            locks.acquire("nightly", timeout=0)
        theirs.execute("COMMIT")
        theirs.close()
        with locks.hold("nightly", timeout=0):
            pass


@told_by_the_system
def test_who_forgets_to_end_a_fenced_transaction_is_told_that_it_is_theirs(tmp_path: Path) -> None:
    path, settings = tmp_path / "locks.db", replace(QUICK, release_timeout=0.1)
    with closing(sqlite3.connect(path)) as theirs, Holdfast(url_of(path, 0.05), settings=settings) as locks:
        lease = locks.acquire("nightly")
        lease.fence(theirs)
        with pytest.raises(StoreUnavailable, match="of this same process keeps it locked"):
            lease.release()
        theirs.rollback()
        lease.release()


def test_where_the_system_does_not_tell_who_has_the_file_nobody_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "locks.db"
    monkeypatch.setattr(lockers, "_LOCKS", tmp_path / "not there")
    with Holdfast(url_of(path, 0.1)) as locks, another_writer(path) as end:
        with pytest.raises(StoreUnavailable, match="keeps it locked, of this process or another"):
            locks.acquire("nightly", timeout=0)
        end()


def test_a_writer_that_takes_less_than_we_wait_costs_only_time(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path, PATIENCE)) as locks, another_writer(path) as end:
        taken = threading.Event()

        def work() -> None:
            with locks.hold("nightly", timeout=0):
                taken.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert not taken.wait(0.2)
        end()
        assert taken.wait(PATIENCE)
        thread.join(PATIENCE)


def test_reading_does_not_wait_for_a_thread_that_waits_to_write(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path, PATIENCE * 10), history="all") as locks:
        mine = locks.acquire("mine")
        with another_writer(path) as end:
            writer = threading.Thread(target=lambda: locks.acquire("nightly", timeout=PATIENCE).release())
            writer.start()
            eventually(locks._engine.store.sessions.mutex.locked)
            for look in (
                lambda: locks.inspect("mine"),
                lambda: list(locks.list()),
                lambda: locks.history("mine"),
                lambda: list(locks.watch("*", timeout=0)),
            ):
                looking = threading.Thread(target=look)
                looking.start()
                looking.join(PATIENCE)
                assert not looking.is_alive()
            assert writer.is_alive()
            end()
            writer.join(PATIENCE)
            assert not writer.is_alive()
        mine.release()


def test_reading_takes_no_turn_at_the_connection_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, for a reader that would wait for no more than a moment."""

    class Taken:
        def __enter__(self) -> None:
            raise AssertionError("who reads has waited for who writes")

        def __exit__(self, *_: object) -> None: ...

    with Holdfast(url_of(tmp_path / "locks.db")) as locks, monkeypatch.context() as patched:
        patched.setattr(locks._engine.store.sessions, "mutex", Taken())
        assert locks.inspect("mine") is None
        assert list(locks.list()) == []
        assert locks.history("mine") == ()
        assert list(locks.watch("*", timeout=0)) == []


def test_a_lease_outlives_a_writer_that_takes_long(tmp_path: Path) -> None:
    """Renewals fail and are tried again; an error is not a loss."""
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path, 0.05), settings=QUICK) as locks:
        lease = locks.acquire("nightly", ttl=4.0)
        with another_writer(path) as end:
            eventually(lambda: lease._holding.kept.failures >= 1)
            end()
        before = lease._holding.kept.trusted_until
        eventually(lambda: lease._holding.kept.trusted_until > before)
        lease.release()


def test_opening_waits_for_a_writer_as_well(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    sqlite3.connect(path).close()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with another_writer(path) as end:
        with pytest.raises(StoreUnavailable, match="keeps it locked"):
            Holdfast(url_of(path, 0.1))
        end()
        take(url_of(path))


# Damage while it is in use.


def test_dropped_tables_are_told_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path)) as locks:
        lease = locks.acquire("nightly")
        with sqlite3.connect(path) as db:
            tables = "SELECT name FROM sqlite_master WHERE name LIKE 'holdfast%' AND type = 'table'"
            for (name,) in db.execute(tables).fetchall():
                db.execute(f"DROP TABLE {name}")
        db.close()
        with pytest.raises(StoreMisconfigured, match="its holdfast tables are gone"):
            locks.acquire("other", timeout=0)
        with pytest.raises(StoreMisconfigured, match="its holdfast tables are gone"):
            lease.release()
        make(path)  # somebody restarts
        with locks.hold("nightly", timeout=0) as again:
            assert again.token > lease.token
    assert count_locked(path) == 0


def test_a_page_that_is_damaged_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path)) as locks:
        for n in range(300):
            with locks.hold(f"key-{n:03}"):
                pass
    with sqlite3.connect(path) as db:
        (page,) = db.execute("PRAGMA page_size").fetchone()
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'holdfast_locks'").fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    at = (root - 1) * page
    content[at : at + page] = os.urandom(page)
    path.write_bytes(bytes(content))
    with Holdfast(url_of(path)) as locks, pytest.raises(StoreCorrupt, match="damaged; move it away"):
        locks.acquire("key-001", timeout=0)


def test_a_client_is_whole_after_every_error(tmp_path: Path) -> None:
    """No mutex stays locked, no transaction open: another client writes at once."""
    path = tmp_path / "locks.db"
    with Holdfast(url_of(path), settings=QUICK) as locks, Holdfast(url_of(path)) as other:
        real = locks._engine.store.sessions.database._connection

        class Failing:
            """A connection that fails at the n-th statement."""

            def __init__(self, fail_at: int) -> None:
                self.left = fail_at

            def execute(self, *args: object) -> object:
                self.left -= 1
                if self.left == 0:
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                    raise error
                return real.execute(*args)  # type: ignore[union-attr]

            @property
            def in_transaction(self) -> bool:
                return real.in_transaction  # type: ignore[union-attr]

            def close(self) -> None:
                real.close()  # type: ignore[union-attr]

        holder = other.acquire("nightly", owner="holder")
        for fail_at in range(1, 12):
            locks._engine.store.sessions.database._connection = Failing(fail_at)
            with suppress(HoldfastError):
                locks.acquire("nightly", timeout=0)
            locks._engine.store.sessions.database._connection = Failing(fail_at)
            with suppress(HoldfastError):
                locks.acquire("nightly", timeout=0.01)
            locks._engine.store.sessions.database._connection = real
            assert not real.in_transaction
            with other.hold("another", timeout=0):
                pass
        holder.release()
        with locks.hold(
            "nightly", timeout=PATIENCE
        ):  # a ticket whose withdrawal failed ends with its patience
            pass
        eventually(lambda: other.sweep() and count_locked(path) == 0)
