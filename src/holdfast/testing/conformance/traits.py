"""What a store is besides its answers: traits, clients that share it, threads, opening and closing."""

from __future__ import annotations

import threading

from holdfast.core.requests import Acquire, Busy, Client, Granted, Release, Released
from holdfast.stores.base import Traits
from holdfast.testing.conformance.asker import CLIENT, KEY, OTHER_CLIENT, Asker, MakeStore


class TraitsAndClients:
    """Each trait is a claim, and each claim is checked as far as one process can."""

    def test_a_store_says_what_it_is(self, ask: Asker) -> None:
        traits = ask.store.traits
        assert isinstance(traits, Traits)
        for claim in (
            traits.durable,
            traits.signals,
            traits.blocking,
            traits.repeats,
            traits.transactions,
            traits.pins,
            traits.groups,
            traits.enters,
            traits.at_once,
        ):
            assert isinstance(claim, bool)

    def test_a_durable_store_outlives_its_clients(self, make_store: MakeStore) -> None:
        """P1: not only the lease, but above all its token."""
        first = make_store()
        if not first.traits.durable:
            return  # a store may keep locks longer than it promises
        token = Asker(first).take("a-1", now=100.0).token
        first.close()
        ask = Asker(make_store())
        view = ask.look(now=101.0)
        assert (view.state, view.token) == ("held", token)
        assert ask.release("a-1", token, now=102.0) == Released()

    def test_clients_share_locks(self, make_store: MakeStore) -> None:
        """P2."""
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = mine.take("a-1", now=100.0).token
        answer = other.acquire("b-1", now=101.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.host, answer.holder.pid) == (CLIENT.host, CLIENT.pid)
        mine.release("a-1", token, now=102.0)
        assert other.take("b-1", now=102.0).token > token

    def test_an_attempt_can_be_ended_by_another_client(self, make_store: MakeStore) -> None:
        """An operator's break, and everything else, is in the store and not in a client."""
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = mine.take("a-1", now=100.0).token
        other.break_(now=101.0, by="olga", reason="stuck")
        assert mine.renew("a-1", token, now=102.0).by == "olga"

    def test_the_history_level_is_that_of_the_client_that_acts(self, make_store: MakeStore) -> None:
        quiet, loud = Asker(make_store(CLIENT, "none")), Asker(make_store(OTHER_CLIENT, "all"), OTHER_CLIENT)
        token = quiet.take("a-1", now=100.0).token
        quiet.release("a-1", token, now=101.0)
        loud.take("b-1", now=102.0)
        assert [(event.number, event.kind) for event in quiet.history()] == [(1, "granted")]

    def test_of_many_threads_one_is_granted(self, ask: Asker) -> None:
        """P2: all methods may be called from any thread."""
        answers: list[object] = []
        start = threading.Barrier(8)

        def take(attempt: str) -> None:
            start.wait()
            answers.append(ask.acquire(attempt, now=100.0))

        threads = [threading.Thread(target=take, args=(f"t-{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(answer, Granted) for answer in answers) == 1
        assert sum(isinstance(answer, Busy) for answer in answers) == 7

    def test_clients_in_many_threads_never_get_the_same_token(self, make_store: MakeStore) -> None:
        """P1, P2: each takes and releases through its own connection, as fast as it can."""
        tokens: list[int] = []

        def work(ask: Asker) -> None:
            for number in range(25):
                attempt = f"{ask.client.instance}-{number}"
                answer = ask.store.execute(Acquire(KEY, attempt, attempt, 60.0, ask.client))
                if isinstance(answer, Granted):
                    tokens.append(answer.token)
                    assert ask.store.execute(Release(KEY, attempt, answer.token)) == Released()

        clients = [Client(f"i-{number}", "alpha", number) for number in range(4)]
        threads = [
            threading.Thread(target=work, args=(Asker(make_store(client), client),)) for client in clients
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(tokens) == len(set(tokens))
        assert tokens

    def test_a_store_can_be_closed_twice(self, make_store: MakeStore) -> None:
        store = make_store()
        Asker(store).take("a-1", now=100.0)
        store.close()
        store.close()

    def test_a_forked_child_has_a_store_that_answers(self, make_store: MakeStore) -> None:
        """It must not use, nor close, what it inherited."""
        store = make_store()
        token = Asker(store).take("a-1", now=100.0, key="parent").token
        store.after_fork(OTHER_CLIENT)
        child = Asker(store, OTHER_CLIENT)
        assert child.take("b-1", now=101.0, key="child").token > 0
        if store.traits.durable:
            assert child.renew("a-1", token, now=102.0, key="parent").outcome == "renewed"
