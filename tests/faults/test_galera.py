"""Two real nodes of a Galera cluster: one of them is used at a time, and the other when that has left."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pymysql
import pytest

from holdfast import Holdfast, errors
from tests.clients.support import PATIENCE, eventually
from tests.servers import Proxy
from tests.servers.fixtures import require, with_tables
from tests.servers.galera import GaleraNode, provider
from tests.servers.ports import HOST, with_port


@pytest.fixture
def nodes() -> Iterator[tuple[GaleraNode, GaleraNode]]:
    require("mariadbd")
    if provider() is None:
        pytest.skip("missing: libgalera_smm.so, from the package galera-4")
    with GaleraNode(1) as one, GaleraNode(2, one) as two:
        two.wait_for_size(2)
        yield one, two


def test_one_node_is_used_until_it_has_left(nodes: tuple[GaleraNode, GaleraNode]) -> None:
    one, two = nodes
    here = with_tables(one.create_database())
    there = with_port(here, two.port)
    database = urlsplit(here).path[1:]

    def caller(node: GaleraNode) -> pymysql.Connection:
        return pymysql.connect(
            host=HOST, port=node.port, user="holdfast", database=database, ssl_disabled=True
        )

    with Holdfast(here) as locks:
        lease = locks.acquire("nightly", ttl=60)
        with (
            pytest.raises(errors.StoreMisconfigured, match=r"node-2 .*node-1 .*one node"),
            Holdfast(there) as other,
        ):
            other.try_acquire("nightly")

        with caller(one) as theirs:
            theirs.begin()
            lease.fence(theirs)
            theirs.rollback()
        with caller(two) as theirs:
            theirs.begin()
            with pytest.raises(errors.SettingsError, match="another node"):
                lease.fence(theirs)
        # Whoever goes to the same node waits there, and is woken.
        with Holdfast(here) as second, ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(second.acquire, "nightly", owner="you", timeout=PATIENCE)
            eventually(lambda: len(locks.inspect("nightly").waiters) == 1)
            lease.release()
            assert waiting.result().token > lease.token

    # A client at work is led to the other node, and asks again until the first one has left.
    with Proxy(HOST, one.port) as proxy, Holdfast(proxy.through(here)) as locks:
        lease = locks.acquire("weekly", ttl=60)
        proxy.point_at(HOST, two.port)
        with pytest.raises(errors.StoreUnavailable, match="node-1"):
            locks.try_acquire("daily")
        one.stop()
        two.wait_for_size(1)
        with locks.hold("daily", timeout=PATIENCE) as another:
            assert another.token > lease.token
        lease.check()
        with Holdfast(there) as other:
            assert other.try_acquire("weekly", owner="you") is None
        lease.release()
