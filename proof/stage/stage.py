"""A store brought up for a run, with everything around it that faults need to get hold of.

Everything is private to the stage: servers, proxies, filesystems, in temporary directories and on free ports.
Nothing of it is left when it is closed, nor when its process is killed.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Literal, Self, cast

from holdfast import Holdfast
from proof.faults.base import MISSING
from proof.histories import audit
from proof.histories.records import FENCED, Audit, Clock
from proof.stage.disks import Disk, NoDisk
from proof.stage.lock_server import WatchedLockServer
from proof.stage.preload import Preload
from proof.stage.probe import Looking, execute
from proof.traffic import resources
from tests.servers import MariaDBServer, PostgresServer, Proxy
from tests.servers.binaries import faketime
from tests.servers.lock_server import LockServer
from tests.servers.ports import HOST
from tests.servers.scratch import remove, scratch

StoreName = Literal["sqlite", "postgres", "mariadb"]
Way = Literal["direct", "http"]
Database = PostgresServer | MariaDBServer

SIZES = {
    "sqlite": 1 << 30,
    "postgres": 4 << 30,
    "mariadb": 3 << 30,
}  # of the disk; what is not used costs nothing
SETTINGS: dict[str, dict[str, str | int]] = {
    "postgres": {"max_wal_size": "256MB"},
    # Whoever needs an id takes one, and waits for nobody who has taken his.
    "mariadb": {"innodb_autoinc_lock_mode": 2},
}
# A client gives up soon: else it would spend the run waiting for what a fault has swallowed.
OPTIONS = {
    "sqlite": "synchronous=full&busy_timeout=3",
    "postgres": "request_timeout=2&connect_timeout=2",
    "mariadb": "request_timeout=2&connect_timeout=2&ssl_disabled=yes",
}
HTTP_OPTIONS = "timeout=2.5&connect_timeout=2"


class Stage:
    """One store and its surroundings. A context manager: it starts everything, and removes it again."""

    proxy: Proxy | None = None  # between clients and the lock server on one side, the database on the other
    http_proxy: Proxy  # between clients and the lock server
    lock_server: LockServer
    database: Database | None = None  # the one in charge
    standby: PostgresServer | None = None

    def __init__(self, store: StoreName, folder: Path, *, seed: int, quick: bool) -> None:
        self.store, self.folder, self.seed, self.quick = store, folder, seed, quick
        self.folder.mkdir(parents=True, exist_ok=True)
        self._place = scratch(durable=True).place("stage", None)
        self._place.chmod(0o711)  # servers that are not root come here for the preload
        self._installed = False
        self._preload: Preload | None = None
        self._disks: dict[Path, Disk] = {}  # by the directory of a server; of SQLite, by its own
        self._missing: dict[str, str] = {}  # what is not possible, and why
        self._names: dict[str, str] = {}  # of databases on the server
        self._looking = Looking(self)
        self._things = ExitStack()
        self._things.callback(remove, self._place)
        self._things.callback(self._remove_disks)
        self._things.callback(self._remove_servers)

    def __enter__(self) -> Self:
        try:
            self._start()
            self.install()
            self.lock_server.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._things.callback(self.heal_disturbances)
        self._things.close()

    # Where things are.

    def url(self, way: Way) -> str:
        """Return what clients connect to: the database, or the lock server; each through its proxy."""
        if way == "http":
            return f"http://{HOST}:{self.http_proxy.port}?{HTTP_OPTIONS}"
        return f"{self._near('locks')}?{OPTIONS[self.store]}"

    def resource_url(self, kind: str) -> str:
        """Return where resources of a kind are, for `resources.connect`: the fenced are beside the locks."""
        return self._near("locks" if kind == FENCED else "resources")

    def direct_url(self, name: str = "locks") -> str:
        """Return the database of that name, without a proxy in between."""
        if self.database is None:
            return f"sqlite:///{self._file(name)}"
        return self.database.url(self._names[name])

    @property
    def disk(self) -> Disk | None:
        """What the database in charge lives on."""
        return self._disks.get(self.database.directory if self.database else self._place)

    @property
    def environment(self) -> dict[str, str]:
        """What the processes of the database have in their environment: the preload."""
        return {} if self._preload is None else self._preload.environment

    @property
    def client_environment(self) -> dict[str, str]:
        """What clients need in theirs. Those of SQLite are the ones that use the disk and read the clock."""
        return self.environment if self.store == "sqlite" else {}

    # What can be done to it.

    def can(self, fault: str) -> str | None:
        """Return why a fault is not possible here, or None if it is."""
        known = {
            "database": "the store is a file, and has no process of its own" if self._is_file else None,
            "network": "the store is a file, and nothing is in between" if self._is_file else None,
            "promotion": None if self.standby else self._missing.get("standby", "there is no standby"),
            "client clock": None if faketime() else f"{MISSING} there is no libfaketime",
            "clock step": self._missing.get("preload"),
            "slow fsync": self._missing.get("preload"),
            "failing fsync": self._missing.get("preload"),
            "full disk": self._missing.get("disk"),
            "power cut": (self._missing.get("disk") or self._missing.get("preload"))
            if self._is_file
            else "servers are killed instead",
        }
        known["promote"] = known["promotion"]
        return known[fault]

    @property
    def can_promote(self) -> bool:
        return self.can("promotion") is None

    def promote(self) -> None:
        """Kill the database, let its synchronous standby take its place, and give that one a standby."""
        old, new = self.database, self.standby
        assert old is not None
        assert new is not None
        assert self.proxy is not None
        self._start_again()  # it may have died of a disk as well
        old.kill()
        new.promote()
        self.database, self.standby = new, None
        self.proxy.point_at(HOST, new.port)
        self._remove(old)
        self.standby = new.standby(synchronous=True)

    def step_database_clock(self, seconds: float) -> None:
        """Set the database's clock to *seconds* from the real time, at once. 0 sets it right."""
        assert self._preload is not None
        self._preload.set_clock(seconds)

    def slow_fsync(self, seconds: float) -> None:
        """Make every fsync of the database take so much longer. 0 heals."""
        assert self._preload is not None
        self._preload.slow_fsync(seconds)

    def fail_fsync(self, on: bool) -> None:
        """Let every fsync of the database fail with EIO. Servers die of it: `revive` them afterwards."""
        assert self._preload is not None
        self._preload.fail_fsync(on)

    def cut_power(self) -> Path:
        """Return the SQLite file as a cut of the power at this moment would leave it: see `Disk.cut`."""
        assert self._is_file
        assert self.disk is not None
        return self.disk.cut() / self._file("locks").name

    def revive(self) -> None:
        """Have the database and the lock server run again, if they do not, and answer."""
        if self.database is not None:
            self.database.resume()
            self.revive_database()
        process = self.lock_server._process
        if process is None or process.poll() is not None:
            self.lock_server.start()
        else:
            self.lock_server.send(signal.SIGCONT)

    def revive_database(self) -> None:
        """Start the database and its standby if they have ended, or are about to; return when it commits."""
        self._looking.wait_for_answers(self._start_again)

    def _start_again(self) -> None:
        for server in (self.database, self.standby):  # without its standby a database commits nothing
            if server is not None and not server.is_running:
                server.kill()  # what its end has left behind
                server.start()

    def heal_disturbances(self) -> None:
        """Undo what the stage does to clocks, disks and the network."""
        if self._preload is not None:
            self._preload.set_clock(0)
            self._preload.slow_fsync(0)
            self._preload.fail_fsync(False)
        for disk in self._disks.values():
            disk.empty()

    def heal(self) -> None:
        """Undo everything that was done to it, and have everything run again."""
        self.heal_disturbances()
        for proxy in (self.proxy, self.http_proxy):
            if proxy is not None:
                proxy.restore()
        self.revive()

    # What is in it.

    def install(self) -> None:
        """Make the tables of holdfast, the audit's triggers, and the tables of resources. Once is enough."""
        if self._installed:
            return
        url = self.direct_url()
        dialect = url.partition(":")[0]
        with Holdfast(url if self._is_file else f"{url}?apply_schema=yes") as locks:
            locks.inspect("anything")
        execute(url, audit.statements(dialect))
        for name in ("locks", "resources"):
            execute(self.direct_url(name), resources.statements(dialect))
        self._installed = True

    def store_clock(self) -> Clock:
        """Look at the store's clock, directly. Raise what its driver raises if it does not answer soon."""
        return self._looking.clock()

    def read_audit(self) -> list[Audit]:
        return list(self.iterate_audit())

    def iterate_audit(self) -> Iterator[Audit]:
        return audit.read(self.direct_url())

    def read_resources(self) -> dict[str, list[str]]:
        """Return the updates of every resource that survive, in order."""
        found: dict[str, list[str]] = {}
        for name in ("locks", "resources"):
            with closing(resources.connect(self.direct_url(name))) as connected:
                found |= resources.surviving(connected)
        return found

    # Bringing it up.

    @property
    def _is_file(self) -> bool:
        return self.store == "sqlite"

    @property
    def clock_offset(self) -> float:
        """How far the database's clock was set from the real time, in seconds."""
        return 0.0 if self._preload is None else self._preload.offset

    def _near(self, name: str) -> str:
        url = self.direct_url(name)
        return self.proxy.through(url) if self.proxy else url

    def _file(self, name: str) -> Path:
        disk = self._disks.get(self._place)
        return (disk.path if disk else self._place) / f"{name}.db"

    def _start(self) -> None:
        try:
            self._preload = Preload(self._place)
            self._things.callback(self._preload.close)
        except OSError as error:
            self._missing["preload"] = f"{MISSING} {error}"
        if self._is_file:
            self._make_disk(self._place, None)
        else:
            self._start_database()
        log = self.folder / "lock-server.log"
        self.lock_server = WatchedLockServer(
            self.url("direct"), log, "--log-level", "warning", **self.client_environment
        )
        self._things.callback(self.lock_server.__exit__)
        self.http_proxy = self._things.enter_context(Proxy(HOST, self.lock_server.port))

    def _start_database(self) -> None:
        kind: type[Database] = PostgresServer if self.store == "postgres" else MariaDBServer
        stage = self

        def outfit(server: Database, **options: object) -> None:
            kind.__init__(server, **options)  # type: ignore[arg-type]
            server.environment |= stage.environment
            if disk := stage._make_disk(server.directory, server.account):
                server.data = disk.path / "data"

        # A standby is of the class of its primary, and so it gets the same.
        equipped = cast("type[Database]", type(kind.__name__, (kind,), {"__init__": outfit}))
        self.database = equipped(durable=True, settings=SETTINGS[self.store])
        self.database.start()
        for name in ("locks", "resources"):
            self._names[name] = self.database.create_database().rpartition("/")[2]
        self.proxy = self._things.enter_context(Proxy(HOST, self.database.port))
        if isinstance(self.database, MariaDBServer):
            self._missing["standby"] = (
                "MariaDB's replicas are asynchronous: a promotion may lose the newest leases"
            )
        elif self.quick:
            self._missing["standby"] = "the short version has no standby"
        elif self.seed % 2 == 0:  # with one, winners in other processes are told no token, and claim
            self._missing["standby"] = "with an even seed there is no standby: winners enter by the hand-over"
        else:
            self.standby = self.database.standby(synchronous=True)

    def _make_disk(self, place: Path, account: str | None) -> Disk | None:
        try:
            disk = Disk(
                place / "disk",
                size=SIZES[self.store],
                account=account,
                still=self._preload.hold_fsync if self._preload else nullcontext,
                before_filling=self._shorten_log if self._is_file else lambda: None,
            )
        except NoDisk as error:
            self._missing["disk"] = f"{MISSING} {error}"
            return None
        self._disks[place] = disk
        return disk

    def _shorten_log(self) -> None:
        """Cut off SQLite's log: what it has already of the disk could be written again for a while."""
        for name in ("locks", "resources"):
            with closing(sqlite3.connect(self._file(name), timeout=2)) as file:
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _remove_disks(self) -> None:
        for disk in self._disks.values():
            disk.close()

    def _remove_servers(self) -> None:
        for server in (self.standby, self.database):
            if server is not None:
                self._remove(server)

    def _remove(self, server: Database) -> None:
        server.kill()
        if disk := self._disks.pop(server.directory, None):
            disk.close()
        server.close()
