"""Entering by the hand-over: what a winner is told, and what the store makes of a winner that has entered."""

from __future__ import annotations

import queue

import pytest

from holdfast.core.family import PLAIN, Terms
from holdfast.core.requests import LeaseAnswer, NotHeld, Released, Signal
from holdfast.testing.conformance.asker import (
    CLIENT,
    OPERATION,
    OTHER_CLIENT,
    SHARED,
    Asker,
    MakeStore,
    permits,
)

WAIT = 10.0  # for a signal that crosses processes


class Entering:
    """A hand-over is a grant: its signal says the token, when it was granted, and for how long.

    A store without the trait *enters* may say no token: it cannot be sure that the hand-over is durable
    before somebody hears of it.
    """

    @pytest.mark.parametrize("terms", [PLAIN, SHARED, permits(1)], ids=["plain", "shared", "permits"])
    def test_a_winner_is_told_its_token_and_from_when_it_lasts(self, ask: Asker, terms: Terms) -> None:
        handed = _handed(ask, terms)
        assert handed.token or not (ask.store.traits.enters and ask.store.traits.signals)
        if handed.token:
            assert (handed.at, handed.expires_in) == (102.0, 5.0)
            assert handed.token == ask.look(now=102.0).token
            assert ask.renew("b-1", handed.token, now=106.9, ttl=30.0).outcome == "renewed"

    @pytest.mark.parametrize(
        "terms", [OPERATION, Terms(delay=3.0), Terms(at_least=1.0)], ids=["operation", "delay", "at_least"]
    )
    def test_terms_that_count_who_began_tell_no_token(self, ask: Asker, terms: Terms) -> None:
        handed = _handed(ask, terms)
        assert (handed.token, handed.at) == (0, 0.0)

    def test_a_winner_elsewhere_is_told_the_same(self, make_store: MakeStore) -> None:
        store = make_store(CLIENT)
        mine, other = Asker(store), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        arrived: queue.Queue[Signal] = queue.Queue()
        other.store.listen(arrived.put)
        token = mine.take("a-1", now=100.0).token
        other.queue("b-1", now=101.0, claim=5.0)
        mine.release("a-1", token, now=102.0)
        if store.traits.signals:
            handed = arrived.get(timeout=WAIT)
            assert handed.token or not store.traits.enters
            if handed.token:
                expected = mine.look(now=102.0).token
                assert (handed.token, handed.at, handed.expires_in) == (expected, 102.0, 5.0)

    def test_a_winner_may_release_what_it_has_not_claimed(self, ask: Asker) -> None:
        token = _hand_over(ask, PLAIN)
        assert ask.release("b-1", token, now=103.0) == Released(0, "c-1")

    @pytest.mark.parametrize("terms", [PLAIN, SHARED, permits(1)], ids=["plain", "shared", "permits"])
    def test_the_first_renewal_lasts_the_full_ttl(self, ask: Asker, terms: Terms) -> None:
        token = _hand_over(ask, terms)
        assert ask.renew("b-1", token, now=105.0, ttl=30.0) == LeaseAnswer("renewed", 30.0)
        view = ask.look(now=106.0)
        assert view.holder is not None
        assert (view.holder.claimed, view.expires_in) == (True, 29.0)

    @pytest.mark.parametrize("terms", [PLAIN, SHARED, permits(1)], ids=["plain", "shared", "permits"])
    def test_one_that_could_be_entered_and_expires_is_over(self, ask: Asker, terms: Terms) -> None:
        """Its winner may have been at work: it is told that it lost the lease, and does not come back."""
        token = _hand_over(ask, terms)
        assert ask.renew("b-1", token, now=107.0, ttl=30.0).outcome == "lost"
        assert ask.acquire("b-1", now=107.0, wait=True, terms=terms) == NotHeld("expired")
        assert isinstance(ask.release("b-1", token, now=107.0), NotHeld)


def _hand_over(ask: Asker, terms: Terms) -> int:
    """Hand the lock over to b-1, for 5 s from 102 on, with c-1 behind it; return the token."""
    token = ask.take("a-1", now=100.0, terms=terms if terms.mode == "permits" else PLAIN).token
    ask.queue("b-1", now=101.0, claim=5.0, terms=terms)
    ask.queue("c-1", now=101.0, claim=5.0, terms=PLAIN if terms.mode == "shared" else terms)
    ask.release("a-1", token, now=102.0)
    return ask.look(now=102.0).token


def _handed(ask: Asker, terms: Terms) -> Signal:
    """Hand the lock over; return what its winner is told with that."""
    told: list[Signal] = []
    ask.store.listen(told.append)
    _hand_over(ask, terms)
    return next((signal for signal in told if signal.kind == "granted"), Signal("granted", "", ""))
