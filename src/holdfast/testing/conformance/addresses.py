"""Addresses: somebody behind a client is told through it, and asking again says where one is now."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.family import PLAIN
from holdfast.core.requests import Client, Granted, Signal
from holdfast.stores.base import Store
from holdfast.testing.conformance.asker import (
    CLIENT,
    OPERATION,
    OTHER_CLIENT,
    SHARED,
    Asker,
    MakeStore,
    arrivals,
)

WAIT = 10.0  # for a signal that crosses processes; it is there at once, or the test fails


def behind(client: Client, to: str) -> Client:
    """Return the address of somebody whom *client* passes signals on to."""
    return replace(client, instance=f"{client.instance}/{to}")


class Addresses:
    """A signal for ``home/to`` goes to the client ``home``, which is told *to*."""

    def test_a_signal_for_an_address_goes_to_its_home(self, make_store: MakeStore) -> None:
        store, mine, one, _ = self._people(make_store)
        arrived = arrivals(one.store)
        for key, terms in (("k1", PLAIN), ("k2", SHARED)):
            token = mine.take("a-1", now=100.0, key=key).token
            one.queue("b-1", now=101.0, key=key, terms=terms)
            mine.release("a-1", token, now=102.0, key=key)
            if store.traits.signals:
                assert arrived.get(timeout=WAIT) == Signal("granted", key, "b-1", to="s-1")
        assert arrived.empty()
        assert mine.signals() == []

    def test_a_new_head_and_a_broken_holder_are_told_by_their_addresses(self, make_store: MakeStore) -> None:
        store, mine, one, two = self._people(make_store)
        arrived = arrivals(one.store)
        one.store.be_reachable()
        one.take("b-1", now=100.0)
        two.queue("c-1", now=101.0, claim=4.0)
        one.queue("d-1", now=101.0, claim=6.0)
        mine.break_(now=102.0)
        if store.traits.signals:
            assert {arrived.get(timeout=WAIT) for _ in range(3)} == {
                Signal("lost", "nightly", "b-1", to="s-1"),
                Signal("granted", "nightly", "c-1", to="s-2"),
                Signal("head", "nightly", "d-1", 4.0, to="s-1"),
            }
        assert arrived.empty()

    def test_the_end_of_an_operation_is_told_once_to_each_address(self, make_store: MakeStore) -> None:
        store, mine, one, two = self._people(make_store)
        arrived = arrivals(one.store)
        token = mine.take("a-1", now=100.0, terms=OPERATION).token
        for ask, attempt in ((one, "b-1"), (two, "c-1"), (one, "d-1"), (mine, "e-1"), (mine, "f-1")):
            ask.queue(attempt, now=101.0, terms=OPERATION)
        mine.succeed("a-1", token, now=102.0)
        assert mine.full_signals() == (Signal("over", "nightly", ""),)
        if store.traits.signals:
            told = {arrived.get(timeout=WAIT) for _ in range(2)}
            assert told == {Signal("over", "nightly", "", to=to) for to in ("s-1", "s-2")}
        assert arrived.empty()

    def test_a_client_tells_those_behind_it_by_itself(self, ask: Asker) -> None:
        """Within one client signals come with the answer."""
        inner = Asker(ask.store, behind(CLIENT, "s-1"))
        token = ask.take("a-1", now=100.0).token
        inner.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, claim=6.0)
        ask.release("a-1", token, now=102.0)
        assert set(inner.full_signals()) == {
            Signal("granted", "nightly", "b-1", to="s-1"),
            Signal("head", "nightly", "c-1", 5.0),
        }

    def test_without_an_address_nobody_is_told(self, make_store: MakeStore) -> None:
        mine, nowhere = Asker(make_store()), Asker(make_store(OTHER_CLIENT), replace(CLIENT, instance=""))
        token = mine.take("a-1", now=100.0).token
        nowhere.queue("b-1", now=101.0)
        nowhere.queue("c-1", now=101.0, claim=6.0)
        mine.release("a-1", token, now=102.0)
        mine.break_(now=103.0)
        assert mine.signals() == nowhere.signals() == []
        assert isinstance(nowhere.acquire("c-1", now=104.0, wait=True), Granted)

    def test_an_address_as_long_as_can_be(self, make_store: MakeStore) -> None:
        """Sixty-four characters on each side of the slash, whatever a database allows for names."""
        home, to = "h" * 64, "t" * 64
        far = Client(home, "gamma", 303)
        store = make_store()
        mine, other = Asker(store), Asker(make_store(far), behind(far, to))
        arrived = arrivals(other.store)
        token = mine.take("a-1", now=100.0).token
        other.queue("b-1", now=101.0)
        mine.release("a-1", token, now=102.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("granted", "nightly", "b-1", to=to)
        assert other.take("b-1", now=103.0).token > token

    def test_asking_again_says_where_we_are_now(self, make_store: MakeStore) -> None:
        """Who lost its line has another address, and keeps its place."""
        store, mine, one, two = self._people(make_store)
        token = mine.take("a-1", now=100.0).token
        one.queue("b-1", now=101.0)
        mine.queue("c-1", now=101.0)
        moved = Asker(two.store, replace(two.client, host="gamma", pid=303))
        arrived = arrivals(one.store)
        assert moved.queue("b-1", now=102.0).position == 1
        first, _ = mine.look(now=102.0).waiters
        assert (first.owner, first.host, first.pid, first.waiting_for) == ("b-1", "gamma", 303, 1.0)
        mine.release("a-1", token, now=103.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("granted", "nightly", "b-1", to="s-2")
        holder = mine.look(now=103.0).holder
        assert holder is not None
        assert (holder.host, holder.pid) == ("gamma", 303)

    def test_claiming_says_where_we_are_now(self, make_store: MakeStore) -> None:
        store, mine, one, two = self._people(make_store)
        arrived = arrivals(one.store)
        for key, terms in (("k1", PLAIN), ("k2", SHARED)):
            token = mine.take("a-1", now=100.0, key=key).token
            one.queue("b-1", now=101.0, key=key, terms=terms)
            mine.release("a-1", token, now=102.0, key=key)
            if store.traits.signals:
                assert arrived.get(timeout=WAIT) == Signal("granted", key, "b-1", to="s-1")
            two.take("b-1", now=103.0, key=key, wait=True, terms=terms)
            mine.break_(now=104.0, key=key)
            if store.traits.signals:
                assert arrived.get(timeout=WAIT) == Signal("lost", key, "b-1", to="s-2")

    def test_a_heartbeat_does_not_move_a_ticket(self, make_store: MakeStore) -> None:
        """Whoever sends it for others: it does not say who asks."""
        store, mine, one, _ = self._people(make_store)
        arrived = arrivals(one.store)
        token = mine.take("a-1", now=100.0).token
        one.queue("b-1", now=101.0)
        mine.refresh("b-1", now=101.5)
        mine.release("a-1", token, now=102.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("granted", "nightly", "b-1", to="s-1")

    @staticmethod
    def _people(make_store: MakeStore) -> tuple[Store, Asker, Asker, Asker]:
        """Return a store, who asks it, and two behind another client."""
        store, other = make_store(CLIENT), make_store(OTHER_CLIENT)
        one, two = (Asker(other, behind(OTHER_CLIENT, to)) for to in ("s-1", "s-2"))
        return store, Asker(store), one, two
