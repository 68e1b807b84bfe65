"""Private database servers for tests: started in a moment, killed without regret, gone with the test run.

- `PostgresServer`, `MariaDBServer`: a server in a temporary directory, on a port of its own
- `PgBouncer`: a pooler before a `PostgresServer`
- `Proxy`: stands between a client and a server, and cuts, delays and loses what they say

`fixtures` gives them to pytest. ``python -m tests.servers`` lists the Debian packages that are missing.
"""

from tests.servers.mariadb import MariaDBServer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.server import Server, ServerFailed

__all__ = ["MariaDBServer", "PgBouncer", "PostgresServer", "Proxy", "Server", "ServerFailed"]
