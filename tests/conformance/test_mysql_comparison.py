"""MySQL answers as the memory store does, on random requests; also through an engine's connections."""

from contextlib import closing
from urllib.parse import urlsplit

import pytest
import sqlalchemy

from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.memory import MemoryStore
from holdfast.stores.mysql import from_engine
from holdfast.testing.compare import compare
from holdfast.testing.conformance import CLIENT
from tests.extent import first

SEEDS = 20
STEPS = 200


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("seed", first(6, range(SEEDS)))
def test_mysql_answers_as_memory_does(mariadb_locks: str, history, seed: int) -> None:
    """At the level all every grant takes the slow path, at notable the fast ones are taken."""
    options = StoreOptions(CLIENT, history)
    with closing(open_store(mariadb_locks, options)) as mysql:
        mysql.open()
        compare(MemoryStore(options), mysql, seed=seed, steps=STEPS, client=CLIENT)


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("seed", first(3, range(SEEDS // 2)))
def test_mysql_answers_about_clusters_as_memory_does(mariadb_locks: str, history, seed: int) -> None:
    options = StoreOptions(CLIENT, history)
    with closing(open_store(mariadb_locks, options)) as mysql:
        mysql.open()
        compare(MemoryStore(options), mysql, seed=seed, steps=STEPS, client=CLIENT, about="cluster")


@pytest.mark.parametrize("about", ["locks", "cluster"])
@pytest.mark.parametrize("seed", first(1, range(SEEDS, SEEDS + 3)))
def test_so_it_does_through_an_engine(mariadb_locks: str, seed: int, about) -> None:
    """SQLAlchemy connects with FOUND_ROWS: rows that an UPDATE finds count as changed. It must not matter."""
    url = urlsplit(mariadb_locks)
    engine = sqlalchemy.create_engine(f"mysql+pymysql://{url.netloc}{url.path}")
    options = StoreOptions(CLIENT)
    with closing(from_engine(engine, options)) as mysql:
        mysql.open()
        compare(MemoryStore(options), mysql, seed=seed, steps=STEPS, client=CLIENT, about=about)
    engine.dispose()
