"""Requests inside a caller's own transaction: fences, releases and grants that come with its commit (P4)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from holdfast.core.family import Terms
from holdfast.core.requests import Acquire, Busy, Fence, Fenced, Granted, NotHeld, Queued, Release, Released
from holdfast.errors import SettingsError, StoreUnavailable
from holdfast.testing.conformance.asker import (
    CLIENT,
    KEY,
    OTHER_CLIENT,
    SHARED,
    Asker,
    MakeStore,
    permits,
)

Connect = Callable[[], Any] | None  # opens a connection of a driver's, with autocommit off


class Fences:
    """The caller's transactions are real ones, on connections of their own."""

    def fence(self, ask: Asker, connection: Any, attempt: str, token: int, now: float) -> Fenced | NotHeld:
        return ask.store.execute_within(connection, Fence(KEY, attempt, token, now=now))

    def acquire_within(self, ask: Asker, connection: Any, attempt: str, now: float) -> Any:
        request = Acquire(KEY, attempt, attempt, 10.0, CLIENT, now=now)
        return ask.store.execute_within(connection, request)

    def release_within(self, ask: Asker, connection: Any, attempt: str, token: int, now: float) -> Any:
        return ask.store.execute_within(connection, Release(KEY, attempt, token, now=now))

    def refused(self, ask: Asker, attempt: str, now: float, *, wait: bool = False) -> bool:
        """Tell whether somebody else is kept out, be it that nobody can write at all."""
        try:
            return isinstance(ask.acquire(attempt, now=now, wait=wait), Busy | Queued)
        except StoreUnavailable:
            return not ask.store.traits.pins

    def test_a_store_without_transactions_says_so(self, ask: Asker, connect: Connect) -> None:
        if ask.store.traits.transactions:
            assert connect is not None, "override the fixture connect"
            return
        with pytest.raises(SettingsError, match="transaction"):
            self.fence(ask, object(), "a-1", 1, now=100.0)

    def test_a_live_lease_can_be_fenced_and_no_other(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0, ttl=10.0).token
        with closing(connect()) as connection:
            assert self.fence(ask, connection, "a-1", token, now=109.9) == Fenced(token)
            connection.rollback()
            assert isinstance(self.fence(ask, connection, "a-1", token, now=110.0), NotHeld)
            connection.rollback()
            assert isinstance(self.fence(ask, connection, "a-1", token - 1, now=101.0), NotHeld)
            connection.rollback()
            assert isinstance(self.fence(ask, connection, "b-1", token, now=101.0), NotHeld)
            connection.rollback()
        ask.release("a-1", token, now=102.0)
        with closing(connect()) as connection:
            assert isinstance(self.fence(ask, connection, "a-1", token, now=103.0), NotHeld)
            connection.rollback()

    def test_each_hold_of_a_lease_can_be_fenced(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0, owner="ann", ttl=10.0).token
        ask.take("a-2", now=100.0, owner="ann", ttl=20.0)
        with closing(connect()) as connection:
            assert self.fence(ask, connection, "a-1", token, now=105.0) == Fenced(token)
            assert self.fence(ask, connection, "a-2", token, now=105.0) == Fenced(token)
            connection.rollback()
            assert isinstance(self.fence(ask, connection, "a-1", token, now=115.0), NotHeld)
            connection.rollback()

    @pytest.mark.parametrize("terms", [SHARED, permits(2)], ids=["shared", "permits"])
    def test_a_lease_that_is_not_exclusive_cannot_be_fenced(
        self, ask: Asker, connect: Connect, terms: Terms
    ) -> None:
        """There is no one holder whose writes it could order."""
        if connect is None:
            return
        token = ask.take("r-1", now=100.0, terms=terms).token
        with closing(connect()) as connection:
            with pytest.raises(SettingsError, match="not exclusive"):
                self.fence(ask, connection, "r-1", token, now=101.0)
            connection.rollback()
        assert ask.renew("r-1", token, now=102.0).outcome == "renewed"

    def test_nobody_is_granted_a_fenced_lock(self, make_store: MakeStore, connect: Connect) -> None:
        """P4: the transaction may go on after the lease is over. It is overtaken by nobody."""
        if connect is None:
            return
        ask, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = ask.take("a-1", now=100.0, ttl=10.0).token
        with closing(connect()) as connection:
            assert self.fence(ask, connection, "a-1", token, now=105.0) == Fenced(token)
            assert self.refused(other, "b-1", now=111.0)
            assert self.refused(other, "c-1", now=111.0, wait=True)
            connection.commit()
        now = 112.0
        queued = other.acquire("c-1", now=now, wait=True)
        assert isinstance(queued, Granted)
        assert queued.token > token

    def test_a_fence_of_one_key_stops_no_other(self, make_store: MakeStore, connect: Connect) -> None:
        """Where a store says so: the same key can be renewed and waited for, other keys can be taken."""
        if connect is None or not make_store().traits.pins:
            return
        ask, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = ask.take("a-1", now=100.0, ttl=10.0).token
        with closing(connect()) as connection:
            assert self.fence(ask, connection, "a-1", token, now=105.0) == Fenced(token)
            assert ask.renew("a-1", token, now=106.0, ttl=20.0).outcome == "renewed"
            other.queue("b-1", now=107.0)
            other.take("b-2", now=107.0, key="another")
            connection.commit()
        assert ask.look(now=108.0).expires_in == pytest.approx(18.0)

    def test_two_transactions_of_one_lease_can_fence_it(self, ask: Asker, connect: Connect) -> None:
        if connect is None or not ask.store.traits.pins:
            return
        token = ask.take("a-1", now=100.0).token
        with closing(connect()) as first, closing(connect()) as second:
            assert self.fence(ask, first, "a-1", token, now=101.0) == Fenced(token)
            assert self.fence(ask, second, "a-1", token, now=101.0) == Fenced(token)
            first.commit()
            second.commit()

    def test_a_released_lock_stays_pinned_until_the_transaction_ends(
        self, ask: Asker, connect: Connect
    ) -> None:
        """Whoever releases before they commit must not be overtaken by the next holder."""
        if connect is None or not ask.store.traits.pins:
            return
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        with closing(connect()) as connection:
            self.fence(ask, connection, "a-1", token, now=102.0)
            assert ask.release("a-1", token, now=103.0) == Released()
            assert self.refused(ask, "c-1", now=103.5)
            assert ask.look(now=103.5).state == "free"
            connection.commit()
        assert isinstance(ask.acquire("b-1", now=104.0, wait=True), Granted)

    def test_a_release_takes_effect_with_the_commit(self, make_store: MakeStore, connect: Connect) -> None:
        if connect is None:
            return
        ask, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = ask.take("a-1", now=100.0).token
        with closing(connect()) as connection:
            assert self.release_within(ask, connection, "a-1", token, now=101.0) == Released()
            assert ask.look(now=101.0).state == "held"
            assert self.refused(other, "b-1", now=101.0)
            connection.commit()
        assert ask.look(now=102.0).state == "free"
        assert isinstance(other.acquire("b-1", now=102.0), Granted)

    def test_a_release_that_is_rolled_back_leaves_the_lease(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0).token
        with closing(connect()) as connection:
            assert self.release_within(ask, connection, "a-1", token, now=101.0) == Released()
            connection.rollback()
        assert ask.renew("a-1", token, now=102.0).outcome == "renewed"

    def test_after_a_release_in_a_transaction_the_head_of_the_queue_is_next(
        self, ask: Asker, connect: Connect
    ) -> None:
        """P7: it is not handed over before anybody can see it, but nobody passes the queue either."""
        if connect is None:
            return
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=102.0)
        with closing(connect()) as connection:
            assert self.release_within(ask, connection, "a-1", token, now=103.0) == Released()
            connection.commit()
        assert isinstance(ask.acquire("d-1", now=104.0), Busy)
        assert isinstance(ask.acquire("b-1", now=104.0, wait=True), Granted)

    def test_a_late_release_in_a_transaction_changes_nothing(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0, ttl=10.0).token
        other = ask.take("b-1", now=111.0).token
        with closing(connect()) as connection:
            answer = self.release_within(ask, connection, "a-1", token, now=112.0)
            assert answer == NotHeld("taken over")
            connection.commit()
        assert ask.look(now=112.0).token == other

    def test_a_grant_takes_effect_with_the_commit(self, make_store: MakeStore, connect: Connect) -> None:
        """R9: lock and data in one transaction."""
        if connect is None:
            return
        ask, other = Asker(make_store()), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        before = ask.take("z-1", now=90.0).token
        ask.release("z-1", before, now=91.0)
        with closing(connect()) as connection:
            granted = self.acquire_within(ask, connection, "a-1", now=100.0)
            assert isinstance(granted, Granted)
            assert granted.token > before
            assert self.refused(other, "b-1", now=100.5)
            connection.commit()
        assert ask.look(now=101.0).token == granted.token
        assert isinstance(other.acquire("b-1", now=101.0), Busy)
        assert ask.release("a-1", granted.token, now=102.0) == Released()

    def test_a_grant_of_a_new_key_that_is_rolled_back_was_none(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        with closing(connect()) as connection:
            assert isinstance(self.acquire_within(ask, connection, "a-1", now=100.0), Granted)
            connection.rollback()
        assert ask.inspect(now=101.0) is None
        assert isinstance(ask.acquire("b-1", now=101.0), Granted)

    def test_a_lock_is_not_taken_past_a_holder_or_a_queue_in_a_transaction_either(
        self, ask: Asker, connect: Connect
    ) -> None:
        if connect is None:
            return
        ask.take("a-1", now=100.0, ttl=10.0)
        ask.queue("b-1", now=101.0)
        with closing(connect()) as connection:
            assert isinstance(self.acquire_within(ask, connection, "c-1", now=102.0), Busy)
            connection.rollback()
            assert isinstance(self.acquire_within(ask, connection, "c-1", now=111.0), Busy)
            connection.rollback()
        assert isinstance(ask.acquire("b-1", now=112.0, wait=True), Granted)

    def test_what_is_no_connection_is_refused(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0).token
        with pytest.raises(SettingsError, match="no connection that holdfast knows"):
            self.fence(ask, object(), "a-1", token, now=101.0)
