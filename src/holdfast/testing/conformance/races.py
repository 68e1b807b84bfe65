"""Many at once, really: each through a store of its own, from a thread of its own, by the store's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.core.cluster import Assigned, Finished
from holdfast.core.requests import Busy, Client
from holdfast.testing.conformance.asker import Asker, MakeStore

THREADS = 4


def at_once(make_store: MakeStore, work: Callable[[Asker], None]) -> None:
    """Let several clients work at the same time; raise what one of them raised."""
    clients = [Client(f"i-{number}", "alpha", number) for number in range(THREADS)]
    askers = [Asker(make_store(client), client) for client in clients]
    failures: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(ask: Asker) -> None:
        try:
            start.wait()
            work(ask)
        except BaseException as failure:  # noqa: BLE001 - it is raised again below
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(ask,)) for ask in askers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Races:
    """Nothing is offered, claimed or assigned twice, and nobody gets more than it can have."""

    def test_of_many_who_offer_the_same_one_is_first(self, make_store: MakeStore) -> None:
        keys = [f"job:{number}" for number in range(10)]
        new: list[bool] = []

        def offer(ask: Asker) -> None:
            # Each in another order: nobody may get in another's way.
            mine = keys if ask.client.pid % 2 else keys[::-1]
            new.extend(ask.offer(*mine, now=None).new)

        at_once(make_store, offer)
        assert sum(new) == len(keys)

    def test_of_many_who_assign_the_same_one_has_it(self, make_store: MakeStore) -> None:
        """P2."""
        answers: list[object] = []

        def assign(ask: Asker) -> None:
            me = ask.client.instance
            answers.extend(ask.assign(f"job:{number}", me, now=None, ttl=60.0) for number in range(5))

        at_once(make_store, assign)
        assert sum(isinstance(answer, Assigned) for answer in answers) == 5
        assert sum(isinstance(answer, Busy) for answer in answers) == 5 * (THREADS - 1)

    def test_nobody_claims_what_another_has(self, make_store: MakeStore) -> None:
        """P1, P2: all of it is done, each piece once, and nobody has more than its capacity."""
        works = 60
        first = Asker(make_store())
        first.offer(*(f"job:{number:02}" for number in range(works)), now=None)
        done: list[Assigned] = []

        def work(ask: Asker) -> None:
            id = f"e-{ask.client.pid}"
            ask.join(id, now=None, capacity=5)
            number = idle = 0
            while idle < 50 and len(done) < works:
                number += 1
                claimed = ask.claim(id, number, now=None, limit=4, ttl=60.0).works
                assert len(claimed) <= 4
                idle = 0 if claimed else idle + 1
                for each in claimed:
                    assert ask.finish(each, now=None) == Finished("completed")
                    done.append(each)

        at_once(make_store, work)
        assert sorted(each.key for each in done) == [f"job:{number:02}" for number in range(works)]
        assert {each.tries for each in done} == {1}
        assert {work.state for work in first.works(now=None).works} == {"completed"}

    def test_copies_of_a_claim_that_come_together_take_it_once(self, make_store: MakeStore) -> None:
        """P6: two of them are under way at once."""
        first = Asker(make_store())
        first.join(now=None, capacity=100)
        first.offer(*(f"job:{number}" for number in range(20)), now=None)
        taken: list[tuple[str, int]] = []

        def claim(ask: Asker) -> None:
            for number in range(1, 4):
                works = ask.claim("e-1", number, now=None, limit=3, ttl=60.0).works
                taken.extend((work.key, work.token) for work in works)

        at_once(make_store, claim)
        assert first.instance(now=None).assigned == 9
        assert len(set(taken)) == 9
