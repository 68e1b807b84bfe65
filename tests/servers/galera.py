"""A Galera cluster of private MariaDB servers. Who joins copies the data of one that runs, by rsync."""

from __future__ import annotations

import time
from pathlib import Path

from tests.servers.mariadb import MariaDBServer
from tests.servers.ports import HOST, free_port
from tests.servers.server import PATIENCE, ServerFailed

PROVIDERS = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")

_QUICK = (
    "evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;evs.suspect_timeout=PT1.5S"
    ";evs.inactive_timeout=PT2S;evs.install_timeout=PT2S"
)


def provider() -> str | None:
    """Tell where the library is that makes a cluster of servers, if it is there."""
    return next((path for path in PROVIDERS if Path(path).exists()), None)


class GaleraNode(MariaDBServer):
    """A node. The first one of a cluster has no *seed*, the others name one that runs."""

    def __init__(self, number: int, seed: GaleraNode | None = None) -> None:
        self.group, self.transfer = free_port(), free_port()
        options = (
            f"gmcast.listen_addr=tcp://{HOST}:{self.group};ist.recv_addr={HOST}:{self.transfer}"
            f";gcache.size=16M;socket.ssl=NO;{_QUICK}"
        )
        super().__init__(
            settings={
                "wsrep_on": 1,
                "wsrep_provider": provider() or PROVIDERS[0],
                "wsrep_provider_options": f'"{options}"',
                "wsrep_cluster_address": f"gcomm://{HOST}:{seed.group}" if seed else "gcomm://",
                "wsrep_node_address": f"{HOST}:{self.group}",
                "wsrep_node_name": f"node-{number}",
                "wsrep_sst_method": "rsync",
                "wsrep_sst_receive_address": f"{HOST}:{free_port()}",
                "binlog_format": "ROW",
                "innodb_autoinc_lock_mode": 2,
            }
        )

    def is_ready(self) -> bool:
        return super().is_ready() and self.has_said("Synchronized with group, ready for connections")

    def wait_for_size(self, size: int) -> None:
        """Wait until the cluster has so many nodes, as this one sees it."""
        deadline = time.monotonic() + PATIENCE
        while self.execute("SHOW STATUS LIKE 'wsrep_cluster_size'") != [("wsrep_cluster_size", str(size))]:
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self} never saw {size} nodes:\n{self.tail()}")
            time.sleep(0.05)
