"""Many instances that claim at the same time: nobody gets what another has, and nobody waits or fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from holdfast.core.cluster import (
    Assigned,
    Claim,
    Claimed,
    Finish,
    Finished,
    Join,
    ListInstances,
    ListWork,
    Offer,
    OfferedWork,
)
from holdfast.core.requests import Client
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions

INSTANCES = 16
ITEMS = 2_000
TTL = 600.0  # nobody sends heartbeats here, however long it takes


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a store that many processes may share."""
    match request.param:
        case "sqlite":
            return f"sqlite:///{request.getfixturevalue('tmp_path')}/locks.db?busy_timeout=60"
        case "postgres":
            return str(request.getfixturevalue("postgres_locks"))
        case _:
            return str(request.getfixturevalue("mariadb_locks"))


def opened(url: str, name: str) -> tuple[Store, Client]:
    client = Client(name, "alpha", 1)
    store = open_store(url, StoreOptions(client))
    store.open()
    return store, client


def together(work: Callable[[int], None]) -> None:
    """Have every instance do *work* at the same time; raise what any of them raises."""
    start = threading.Barrier(INSTANCES)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(INSTANCES) as threads:
        for done in [threads.submit(begin, number) for number in range(INSTANCES)]:
            done.result()


def offer(store: Store, items: int) -> None:
    for first in range(0, items, 1000):
        works = tuple(OfferedWork(f"job:{n:05d}") for n in range(first, min(first + 1000, items)))
        assert all(store.execute(Offer(works)).new)


@pytest.mark.parametrize("batch", [1, 10])
def test_nothing_is_claimed_twice(url: str, batch: int) -> None:
    """Each instance asks until there is nothing left; each piece of work goes to one of them."""
    first, _ = opened(url, "first")
    items = ITEMS // 4 if batch == 1 else ITEMS
    offer(first, items)
    taken: dict[int, list[Assigned]] = {number: [] for number in range(INSTANCES)}

    def claim(number: int) -> None:
        store, client = opened(url, f"c{number}")
        id = f"i-{number:02d}"
        store.execute(Join(id, f"worker-{number}", client, items, TTL))
        for place in count(1):
            answer = store.execute(Claim(id, place, f"{id}-{place}", ("job",), batch, TTL, client))
            assert isinstance(answer, Claimed)
            taken[number] += answer.works
            if not answer.works and answer.again_in != 0.0:
                break
        store.close()

    together(claim)
    keys = [work.key for works in taken.values() for work in works]
    assert len(keys) == items
    assert len(set(keys)) == items
    for number, works in taken.items():
        for view in first.execute(ListWork(instance=f"i-{number:02d}", limit=items)).works:
            (mine,) = [work for work in works if work.key == view.key]
            assert (view.state, view.token, view.tries) == ("assigned", mine.token, 1)
    counts = {each.id: each.assigned for each in first.execute(ListInstances(limit=100)).instances}
    assert counts == {f"i-{number:02d}": len(works) for number, works in taken.items()}
    first.close()


def test_claims_and_endings_get_along(url: str) -> None:
    """Work that fails or is returned comes back and is done by somebody, each try with a higher token."""
    first, _ = opened(url, "first")
    items = ITEMS // 8
    offer(first, items)
    begun: list[Assigned] = []
    done: list[str] = []

    def work(number: int) -> None:
        dice = random.Random(number)
        store, client = opened(url, f"c{number}")
        id = f"i-{number:02d}"
        store.execute(Join(id, f"worker-{number}", client, 8, TTL))
        for place in count(1):
            answer = store.execute(Claim(id, place, f"{id}-{place}", ("job",), 4, TTL, client, spread=0.01))
            assert isinstance(answer, Claimed)
            begun.extend(answer.works)
            for each in answer.works:
                ending = dice.choice(("completed", "completed", "failed", "returned"))
                finish = Finish(each.key, each.attempt, each.token, ending, text="null", retry=0.0)
                if store.execute(finish) == Finished("completed"):
                    done.append(each.key)
                else:
                    assert ending != "completed"
            if len(done) == items:
                break
        store.close()

    together(work)
    page = first.execute(ListWork(limit=items + 1))
    assert {view.state for view in page.works} == {"completed"}
    assert len(page.works) == items
    for view in page.works:
        tokens = [each.token for each in begun if each.key == view.key]
        assert len(set(tokens)) == len(tokens)
        assert max(tokens) == view.token
    first.close()
