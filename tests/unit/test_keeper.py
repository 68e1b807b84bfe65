"""The keeper's books: what is due when, and what an answer means."""

import math

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.keeper import BATCH, Keeper
from holdfast.core.plans import Grant, Handed
from holdfast.core.requests import (
    LeaseAnswer,
    RefreshTicket,
    Renew,
    Renewed,
    RenewLease,
    Signal,
    TicketAnswer,
    Withdraw,
)
from holdfast.core.settings import Settings

SETTINGS = Settings(
    margin=1.0, renew_at=0.6, heartbeat=2.0, claim=5.0, patience=15.0, backoff=Backoff(first=0.1, most=2.0)
)


@pytest.fixture
def keeper() -> Keeper:
    return Keeper(SETTINGS, roll=lambda: 0.0)


def grant(attempt: str = "a-1", *, asked: float = 100.0, ttl: float = 10.0, token: int = 8) -> Grant:
    return Grant("nightly", attempt, "ann", token, ttl, trusted_until=asked + ttl - 1.0)


def keep(
    keeper: Keeper,
    attempt: str = "a-1",
    *,
    asked: float = 100.0,
    ttl: float = 10.0,
    max_hold: float | None = None,
    renew: bool = True,
):
    return keeper.keep(grant(attempt, asked=asked, ttl=ttl), asked=asked, max_hold=max_hold, renew=renew)


def renewal(attempt: str = "a-1", ttl: float = 10.0) -> RenewLease:
    return RenewLease("nightly", attempt, 8, ttl)


def answer(keeper: Keeper, said: LeaseAnswer, *, asked: float, attempt: str = "a-1", ttl: float = 10.0):
    return keeper.answered(Renew(leases=(renewal(attempt, ttl),)), Renewed(leases=(said,)), asked=asked)


def test_when_a_lease_was_asked_for_follows_from_its_trust(keeper):
    keep(keeper, "a-1", asked=100.0, ttl=10.0)
    first = keeper.leases["a-1"]
    margin = keeper.settings.margin_for(10.0)
    told = keeper.keep(
        Grant("nightly", "a-2", "ann", 8, 10.0, trusted_until=100.0 + 10.0 - margin), max_hold=60.0
    )
    assert (told.renew_at, told.stop_at) == (pytest.approx(first.renew_at, abs=2.0), 160.0)


def test_with_nothing_to_keep_there_is_nothing_to_do(keeper):
    assert keeper.next_at() == math.inf
    assert keeper.due(0.0) is None
    assert keeper.overdue(0.0) == []


def test_a_lease_is_due_at_its_part_of_the_ttl(keeper):
    """R12."""
    keep(keeper)
    assert keeper.next_at() == 106.0
    assert keeper.due(105.999) is None
    assert keeper.due(106.0) == Renew(leases=(renewal(),))


def test_a_renewed_lease_is_trusted_from_when_it_was_asked_for(keeper):
    """P3."""
    kept = keep(keeper)
    assert answer(keeper, LeaseAnswer("renewed", 10.0), asked=106.0) == ([], [])
    assert (kept.trusted_until, kept.renew_at) == (115.0, 112.0)


def test_a_lease_that_is_held_longer_is_trusted_as_long_as_was_asked_for(keeper):
    """P3: what the store says of its end is not compared with a clock of ours."""
    kept = keep(keeper)
    answer(keeper, LeaseAnswer("held", 500.0), asked=106.0)
    assert kept.trusted_until == 115.0


def test_trust_is_never_shortened_by_an_answer(keeper):
    kept = keep(keeper)
    answer(keeper, LeaseAnswer("held", 5.0), asked=101.0, ttl=2.0)
    assert kept.trusted_until == 109.0


def test_a_lease_that_was_released_in_a_transaction_ends_without_a_word(keeper):
    kept = keep(keeper)
    kept.leaving = True
    assert answer(keeper, LeaseAnswer("renewed", 10.0), asked=106.0) == ([], [])  # it was rolled back
    assert answer(keeper, LeaseAnswer("lost", why="already"), asked=112.0) == ([], [])
    assert kept.lost.reason == "released"
    assert keeper.leases == {}


def test_a_lease_that_was_to_be_released_in_a_transaction_can_still_be_lost(keeper):
    kept = keep(keeper)
    kept.leaving = True
    assert answer(keeper, LeaseAnswer("lost", why="broken"), asked=106.0) == ([kept], [])


def test_a_lost_lease_is_lost_at_once_and_for_good(keeper):
    kept = keep(keeper)
    lost, signals = answer(keeper, LeaseAnswer("lost", why="taken over"), asked=106.0)
    assert (lost, signals) == ([kept], [])
    assert kept.loss(0.0) is kept.lost
    assert (kept.lost.reason, kept.lost.key, kept.lost.token) == ("taken over", "nightly", 8)
    assert keeper.next_at() == math.inf
    assert not kept.lose("expired")
    assert kept.lost.reason == "taken over"


@pytest.mark.parametrize(
    ("why", "reason"),
    [("already", "released"), ("expired", "expired"), ("broken", "broken"), (None, "unknown")],
)
def test_the_reason_of_a_loss_is_in_words_for_the_holder(keeper, why, reason):
    kept = keep(keeper)
    answer(keeper, LeaseAnswer("lost", why=why, by="olga", reason="stuck"), asked=106.0)
    assert (kept.lost.reason, kept.lost.by, kept.lost.detail) == (reason, "olga", "stuck")


def test_an_unknown_answer_extends_nothing_and_is_asked_again(keeper):
    """Four outcomes, not two."""
    kept = keep(keeper)
    assert answer(keeper, LeaseAnswer("unknown"), asked=106.0) == ([], [])
    assert (kept.trusted_until, kept.renew_at, kept.failures) == (109.0, 106.05, 1)
    assert kept.loss(109.0).reason == "store unreachable"


def test_an_error_is_not_a_loss(keeper):
    """R12: it is retried with backoff until the trust ends."""
    kept = keep(keeper)
    request = keeper.due(106.0)
    for now, then in ((106.0, 106.05), (106.05, 106.15), (106.15, 106.35)):
        keeper.failed(request, "connection refused", now=now)
        assert kept.renew_at == pytest.approx(then)
    assert keeper.overdue(108.999) == []
    assert keeper.overdue(109.0) == [kept]
    assert kept.lost.reason == "store unreachable"
    assert kept.lost.detail == "connection refused"
    assert keeper.leases == {}


def test_a_success_ends_the_trouble(keeper):
    kept = keep(keeper)
    keeper.failed(keeper.due(106.0), "connection refused", now=106.0)
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=107.0)
    assert (kept.failures, kept.trouble) == (0, None)
    assert kept.loss(116.0).reason == "expired"


def test_trust_ends_at_its_very_instant(keeper):
    """P3."""
    kept = keep(keeper)
    assert kept.loss(108.999999) is None
    assert kept.loss(109.0).reason == "expired"


def test_the_end_of_trust_is_something_to_wake_up_for(keeper):
    kept = keep(keeper)
    kept.renew_at = math.inf
    assert keeper.next_at() == 109.0


def test_an_answer_that_comes_after_the_release_is_nobodys_business(keeper):
    kept = keep(keeper)
    keeper.drop("a-1")
    keeper.drop("a-1")
    assert answer(keeper, LeaseAnswer("lost", why="already"), asked=106.0) == ([], [])
    assert kept.lost is None
    keeper.failed(Renew(leases=(renewal(),)), "late", now=106.0)
    assert kept.trouble is None


def test_an_answer_about_another_lease_of_the_attempt_is_nobodys_business(keeper):
    kept = keeper.keep(grant(token=9), asked=100.0, max_hold=None)
    answer(keeper, LeaseAnswer("lost", why="expired"), asked=106.0)
    assert kept.lost is None


def test_a_lease_that_was_lost_meanwhile_is_not_renewed(keeper):
    """A lost lease stays lost, whatever the store says later."""
    kept = keep(keeper)
    kept.lose("forked")
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=106.0)
    assert (kept.lost.reason, kept.trusted_until) == ("forked", 109.0)


def test_a_lease_whose_trust_ended_unseen_is_not_due_to_be_trusted_again(keeper):
    kept = keep(keeper)
    assert kept.loss(109.0) is not None
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=108.0)
    assert kept.lost is not None


def test_leases_that_are_nearly_due_travel_along(keeper):
    """One request for many, if at least one is due."""
    keep(keeper, "a-1")
    keep(keeper, "a-2", asked=100.9)
    keep(keeper, "a-3", asked=102.0)
    assert keeper.due(105.99) is None
    assert keeper.due(106.0) == Renew(leases=(renewal("a-1"), renewal("a-2")))


def test_leases_that_failed_keep_their_own_backoff(keeper):
    keep(keeper, "a-1")
    keep(keeper, "a-2", asked=100.1)
    keeper.failed(Renew(leases=(renewal("a-2"),)), "refused", now=106.0)
    assert keeper.due(106.0) == Renew(leases=(renewal("a-1"),))


def test_a_batch_has_an_end(keeper):
    for number in range(BATCH + 5):
        keep(keeper, f"a-{number}")
        keeper.wait("nightly", f"w-{number}", now=100.0)
    request = keeper.due(106.0)
    assert (len(request.leases), len(request.tickets)) == (BATCH, BATCH)


def test_no_renewal_goes_past_max_hold(keeper):
    kept = keep(keeper, max_hold=14.0)
    assert keeper.due(106.0) == Renew(leases=(renewal(ttl=8.0),))
    answer(keeper, LeaseAnswer("renewed", 8.0), asked=106.0, ttl=8.0)
    assert (kept.trusted_until, kept.renew_at) == (113.0, math.inf)
    assert kept.loss(113.0).reason == "max_hold reached"


def test_a_lease_that_reaches_max_hold_anyway_is_never_renewed(keeper):
    kept = keep(keeper, max_hold=10.0)
    assert kept.renew_at == math.inf
    assert kept.loss(109.0).reason == "max_hold reached"


def test_past_max_hold_nothing_negative_is_asked_for(keeper):
    keep(keeper, max_hold=14.0)
    assert keeper.due(200.0) == Renew(leases=(renewal(ttl=0.0),))


def test_a_signal_makes_a_lease_due_now(keeper):
    keep(keeper)
    keeper.hurry("a-1", 101.0)
    keeper.hurry("unknown", 101.0)
    assert keeper.due(101.0) == Renew(leases=(renewal(),))


def test_a_signal_while_a_renewal_is_under_way_is_asked_about_again(keeper):
    """The answer may be older than what the signal is about."""
    keep(keeper)
    keeper.hurry("a-1", 101.5)
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=101.0)
    assert keeper.due(101.5) == Renew(leases=(renewal(),))
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=102.0)
    assert keeper.next_at() == 108.0


def test_a_signal_before_a_renewal_is_answered_by_it(keeper):
    keep(keeper)
    keeper.hurry("a-1", 100.5)
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=101.0)
    assert keeper.next_at() == 107.0


def test_a_signal_at_the_instant_of_a_renewal_that_was_not_asked_yet_is_answered_by_it(keeper):
    keep(keeper)
    keeper.hurry("a-1", 101.0)
    assert keeper.due(101.0) == Renew(leases=(renewal(),))
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=101.0)
    assert keeper.next_at() == 107.0


def test_a_signal_that_overtakes_the_answer_of_the_grant_is_asked_about_at_once(keeper):
    """The lease may be broken already when its holder hears that it has it."""
    keeper.hurry("a-1", 100.5)
    kept = keep(keeper, asked=100.0)
    assert keeper.next_at() == 100.5
    assert keeper.due(101.0) == Renew(leases=(renewal(),))
    assert answer(keeper, LeaseAnswer("lost", why="broken"), asked=101.0) == ([kept], [])


def test_a_signal_from_before_the_grant_was_asked_for_is_not_about_it(keeper):
    keeper.hurry("a-0", 99.0)
    keep(keeper, asked=100.0)
    assert keeper.next_at() == 106.0


def test_a_signal_that_overtook_an_answer_is_asked_about_once(keeper):
    keeper.hurry("a-1", 100.5)
    keep(keeper, asked=100.0)
    assert keeper.due(100.5) == Renew(leases=(renewal(),))
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=100.5)
    assert keeper.next_at() == 106.5


def test_signals_for_leases_that_never_come_do_not_pile_up(keeper):
    before = {name: len(value) for name, value in vars(keeper).items() if hasattr(value, "__len__")}
    for number in range(1000):
        keeper.hurry(f"gone-{number}", 100.0 + number)
    assert {name: len(value) for name, value in vars(keeper).items() if hasattr(value, "__len__")} == before


def test_a_signal_while_the_last_renewal_is_under_way_is_asked_about_and_extends_nothing(keeper):
    """With a ttl of 0 the store writes nothing, and says whether it is still ours."""
    kept = keep(keeper, max_hold=14.0)
    assert keeper.due(106.0) == Renew(leases=(renewal(ttl=8.0),))
    keeper.hurry("a-1", 106.5)
    answer(keeper, LeaseAnswer("renewed", 8.0), asked=106.0, ttl=8.0)
    assert keeper.due(107.0) == Renew(leases=(renewal(ttl=0.0),))
    answer(keeper, LeaseAnswer("held", 7.0), asked=107.0, ttl=0.0)
    assert (kept.trusted_until, kept.renew_at) == (113.0, math.inf)
    assert kept.loss(113.0).reason == "max_hold reached"


UNRENEWED = pytest.mark.parametrize(
    "how", [{"renew": False}, {"max_hold": 10.0}], ids=["renew=False", "max_hold"]
)


@UNRENEWED
def test_a_signal_about_a_lease_that_is_not_renewed_is_asked_about_at_once(keeper, how):
    kept = keep(keeper, **how)
    assert kept.renew_at == math.inf
    keeper.hurry("a-1", 101.0)
    assert keeper.next_at() == 101.0
    assert keeper.due(101.0) == Renew(leases=(renewal(ttl=0.0),))
    assert answer(keeper, LeaseAnswer("lost", why="broken"), asked=101.0, ttl=0.0) == ([kept], [])


@UNRENEWED
def test_a_lease_that_is_not_renewed_is_not_renewed_by_a_signal_either(keeper, how):
    kept = keep(keeper, **how)
    for asked in (101.0, 103.0):
        keeper.hurry("a-1", asked)
        assert keeper.due(asked) == Renew(leases=(renewal(ttl=0.0),))
        answer(keeper, LeaseAnswer("held", 110.0 - asked), asked=asked, ttl=0.0)
        assert (kept.trusted_until, kept.renew_at) == (109.0, math.inf)
    assert keeper.due(108.0) is None


@UNRENEWED
def test_a_signal_that_overtakes_the_grant_of_a_lease_that_is_not_renewed_is_asked_about(keeper, how):
    keeper.hurry("a-1", 100.5)
    keep(keeper, asked=100.0, **how)
    assert keeper.due(100.5) == Renew(leases=(renewal(ttl=0.0),))


def test_a_lease_that_nobody_wanted_to_renew_has_expired_even_if_the_store_could_not_be_asked(keeper):
    """It would have ended then anyway."""
    kept = keep(keeper, renew=False)
    keeper.hurry("a-1", 101.0)
    keeper.failed(keeper.due(101.0), "connection refused", now=101.0)
    assert kept.renew_at == 101.05
    assert (kept.loss(109.0).reason, kept.lost.detail) == ("expired", "connection refused")


def test_a_lease_that_is_only_watched_is_asked_about_and_not_renewed(keeper):
    kept = keep(keeper)
    keeper.drop("a-1")
    keeper.watch(kept)
    assert keeper.next_at() == 109.0
    keeper.hurry("a-1", 105.0)
    assert keeper.due(105.0) == Renew(leases=(renewal(ttl=0.0),))


def test_who_can_be_told_only_now_asks_about_everything(keeper):
    """Also about what was asked for before and is not answered yet: its signal may have been sent.

    But for what is not renewed: without a signal it costs no request.
    """
    keep(keeper, "a-1", asked=100.0)
    keep(keeper, "a-2", asked=100.0, renew=False)
    keeper.hurry_all(101.0)
    keep(keeper, "a-3", asked=100.5)
    keep(keeper, "a-4", asked=101.5)
    assert keeper.due(102.0) == Renew(leases=(renewal("a-1"), renewal("a-3")))


def test_tickets_are_refreshed_every_heartbeat(keeper):
    keeper.wait("nightly", "w-1", now=100.0)
    assert keeper.next_at() == 102.0
    assert keeper.due(101.9) is None
    assert keeper.due(102.0) == Renew(tickets=(RefreshTicket("nightly", "w-1", 15.0),))


def tell(keeper: Keeper, told: TicketAnswer, asked: float = 102.0):
    request = Renew(tickets=(RefreshTicket("nightly", "w-1", 15.0),))
    return keeper.answered(request, Renewed(tickets=(told,)), asked=asked)


def test_a_ticket_that_waits_is_due_a_heartbeat_later(keeper):
    keeper.wait("nightly", "w-1", now=100.0)
    assert tell(keeper, TicketAnswer("waiting", head=False, expires_in=4.0)) == ([], [])
    assert keeper.next_at() == 104.0


def test_a_ticket_at_the_head_is_told_to_watch(keeper):
    """Signals can be lost; the heartbeat says the same."""
    keeper.wait("nightly", "w-1", now=100.0)
    told = TicketAnswer("waiting", head=True, expires_in=4.0)
    assert tell(keeper, told) == ([], [Signal("head", "nightly", "w-1", 4.0)])


@pytest.mark.parametrize("outcome", ["handed", "gone"])
def test_a_ticket_that_waits_no_more_has_to_ask(keeper, outcome):
    keeper.wait("nightly", "w-1", now=100.0)
    assert tell(keeper, TicketAnswer(outcome)) == ([], [Signal("granted", "nightly", "w-1")])


def test_a_ticket_that_left_is_told_nothing(keeper):
    keeper.wait("nightly", "w-1", now=100.0)
    keeper.leave("w-1")
    keeper.leave("w-1")
    assert tell(keeper, TicketAnswer("handed")) == ([], [])
    keeper.failed(Renew(tickets=(RefreshTicket("nightly", "w-1", 15.0),)), "late", now=102.0)
    assert keeper.tickets == {}


def test_a_refresh_that_failed_is_tried_again_after_a_backoff(keeper):
    keeper.wait("nightly", "w-1", now=100.0)
    request = keeper.due(102.0)
    keeper.failed(request, "refused", now=102.0)
    assert keeper.next_at() == 102.05
    keeper.failed(request, "refused", now=102.05)
    assert keeper.next_at() == pytest.approx(102.15)
    tell(keeper, TicketAnswer("waiting"), asked=103.0)
    keeper.failed(request, "refused", now=105.0)
    assert keeper.next_at() == 105.05


def test_a_refresh_that_failed_is_tried_again_within_a_heartbeat():
    """P7: whoever is handed the lock once the store is back must learn of it within the claim window."""
    settings = Settings(heartbeat=0.3, claim=0.5, patience=15.0, backoff=Backoff(first=0.1, most=2.0))
    keeper = Keeper(settings, roll=lambda: 0.999)
    keeper.wait("nightly", "w-1", now=100.0)
    now = 100.3
    for _ in range(10):
        request = keeper.due(now)
        assert request is not None
        keeper.failed(request, "refused", now=now)
        assert now < keeper.next_at() <= now + 0.3
        now = keeper.next_at()


def test_what_nobody_has_is_given_back_again_and_again(keeper):
    keep(keeper, "a-1")
    keeper.pursue(Withdraw("nightly", "a-1"), lasts=10.0, now=101.0)
    assert keeper.due(107.0) is None, "it is not renewed any more"
    assert keeper.withdrawal(101.0) == Withdraw("nightly", "a-1")
    keeper.not_withdrawn(101.0)
    assert keeper.withdrawal(101.04) is None
    assert keeper.next_at() == 101.05
    assert keeper.withdrawal(101.05) == Withdraw("nightly", "a-1")
    keeper.withdrawn(Withdraw("nightly", "a-1"))
    assert keeper.withdrawal(102.0) is None
    assert keeper.next_at() == math.inf


def test_what_has_ended_by_itself_is_not_given_back_any_more(keeper):
    keeper.pursue(Withdraw("nightly", "a-1"), lasts=10.0, now=100.0)
    keeper.not_withdrawn(100.0)
    assert keeper.withdrawal(109.9) is not None
    assert keeper.withdrawal(110.0) is None
    assert keeper.next_at() == math.inf


def pursue(keeper: Keeper, *attempts: str, lasts: float = 60.0, now: float = 100.0) -> None:
    for attempt in attempts:
        keeper.pursue(Withdraw("nightly", attempt), lasts=lasts, now=now)


def attempt_of(request: Withdraw | None) -> str | None:
    return None if request is None else request.attempt


def test_what_cannot_be_given_back_does_not_keep_the_others(keeper):
    """Somebody has that one locked: it has its own backoff, and the others are asked for soon."""
    pursue(keeper, "locked")
    now = 100.0
    for _ in range(6):
        now = max(now, keeper.next_at())
        assert attempt_of(keeper.withdrawal(now)) == "locked"
        keeper.not_withdrawn(now)
    assert keeper.next_at() == pytest.approx(now + 1.0)
    pursue(keeper, "a-1", "a-2", now=now)
    assert keeper.next_at() == now + 0.05
    for attempt in ("a-1", "a-2"):
        assert attempt_of(keeper.withdrawal(now + 0.05)) == attempt
        keeper.withdrawn(Withdraw("nightly", attempt))
    assert keeper.withdrawal(now + 0.05) is None
    assert attempt_of(keeper.withdrawal(now + 1.0)) == "locked"


def test_a_store_that_is_away_is_not_asked_for_all_of_them_at_once(keeper):
    pursue(keeper, "a-1", "a-2", "a-3")
    assert attempt_of(keeper.withdrawal(100.0)) == "a-1"
    keeper.not_withdrawn(100.0)
    assert keeper.withdrawal(100.04) is None
    assert attempt_of(keeper.withdrawal(100.05)) == "a-2"


def test_what_fails_goes_behind_the_others(keeper):
    pursue(keeper, "a-1", "a-2", "a-3")
    tried = []
    now = 100.0
    for _ in range(6):
        now = max(now, keeper.next_at())
        tried.append(attempt_of(keeper.withdrawal(now)))
        keeper.not_withdrawn(now)
    assert tried[:3] == ["a-1", "a-2", "a-3"]


def test_everything_can_be_tried_at_once(keeper):
    """At the end there is no time for a backoff."""
    pursue(keeper, "a-1", "a-2")
    keeper.withdrawal(100.0)
    keeper.not_withdrawn(100.0)
    keeper.pursue_at = 100.01
    for _ in range(2):
        keeper.withdrawn(keeper.withdrawal(100.01))
    assert keeper.pursued == {}
    assert keeper.pursue_at == 100.01, "nobody sleeps for ever because there is nothing left"


def test_nothing_is_given_back_while_a_lease_that_is_renewed_ends_soon(keeper):
    """Its row may be locked. While the keeper waits for that, it renews nothing."""
    keep(keeper, "short", ttl=2.4)
    keep(keeper, "runs-out", ttl=2.4, renew=False)
    pursue(keeper, "a-1")
    assert keeper.withdrawal(100.0) is None
    assert 100.0 < keeper.next_at() <= 101.4, "it does not look again all the time"
    keeper.drop("short")
    assert keeper.withdrawal(keeper.next_at()) == Withdraw("nightly", "a-1")


def test_what_is_pursued_again_lasts_as_long_as_was_said_last(keeper):
    pursue(keeper, "a-1", lasts=1.0)
    pursue(keeper, "a-1", lasts=10.0)
    assert attempt_of(keeper.withdrawal(105.0)) == "a-1"
    keeper.withdrawn(Withdraw("nightly", "a-1"))
    assert keeper.withdrawal(105.0) is None


# Entering by the hand-over.

HANDED = Signal("granted", "nightly", "w-1", 5.0, token=9, at=1000.0)


def test_a_hand_over_is_trusted_from_when_we_asked_and_were_still_queued(keeper):
    """P3: the grant is later than that."""
    keeper.wait("nightly", "w-1", now=100.5)
    keeper.queued("w-1", asked=100.0, answered_at=998.0)
    assert keeper.heard(HANDED) == Handed(HANDED.attempt, 9, 100.0, 5.0)


def test_a_heartbeat_moves_the_anchor(keeper):
    keeper.wait("nightly", "w-1", now=100.5)
    keeper.queued("w-1", asked=100.0, answered_at=998.0)
    tell(keeper, TicketAnswer("waiting", at=999.0), asked=102.0)
    assert keeper.heard(HANDED) == Handed(HANDED.attempt, 9, 102.0, 5.0)


def test_an_anchor_that_is_younger_than_the_grant_costs_the_difference(keeper):
    """A refresh beside the hand-over still sees the ticket; and a signal may be told again, or late."""
    keeper.wait("nightly", "w-1", now=100.5)
    keeper.queued("w-1", asked=100.0, answered_at=1003.0)
    assert keeper.heard(HANDED) == Handed(HANDED.attempt, 9, 97.0, 5.0)


def test_an_anchor_does_not_move_back(keeper):
    """Answers may come in another order than they were asked for."""
    keeper.wait("nightly", "w-1", now=100.5)
    tell(keeper, TicketAnswer("waiting", at=999.0), asked=102.0)
    keeper.queued("w-1", asked=100.0, answered_at=998.0)
    assert keeper.heard(HANDED).since == 102.0


@pytest.mark.parametrize(
    "told", [TicketAnswer("handed", at=999.0), TicketAnswer("gone"), TicketAnswer("waiting")]
)
def test_an_answer_that_says_no_time_or_no_ticket_is_no_anchor(keeper, told):
    keeper.wait("nightly", "w-1", now=100.5)
    tell(keeper, told)
    assert keeper.heard(HANDED) == HANDED


def test_without_a_ticket_or_a_token_a_signal_is_a_hint(keeper):
    keeper.queued("w-1", asked=100.0, answered_at=998.0)
    assert keeper.heard(HANDED) == HANDED
    keeper.wait("nightly", "w-1", now=100.5)
    keeper.queued("w-1", asked=100.0, answered_at=998.0)
    hint = Signal("granted", "nightly", "w-1")
    assert keeper.heard(hint) == hint


def test_what_was_entered_is_claimed_for_its_full_ttl_by_the_next_renewal(keeper):
    entered = Grant("nightly", "a-1", "ann", 8, 10.0, trusted_until=100.0 + 5.0 - 1.0, lasts=5.0)
    kept = keeper.keep(entered, max_hold=None)
    assert (kept.renew_at, kept.trusted_until) == (103.0, 104.0)
    assert keeper.due(103.0) == Renew(leases=(renewal(),))
    answer(keeper, LeaseAnswer("renewed", 10.0), asked=103.0)
    assert (kept.renew_at, kept.trusted_until) == (109.0, 112.0)


def test_a_loss_that_overtakes_the_hand_over_is_asked_about_at_once(keeper):
    keeper.hurry("a-1", 101.0)
    entered = Grant("nightly", "a-1", "ann", 8, 10.0, trusted_until=100.0 + 5.0 - 1.0, lasts=5.0)
    assert keeper.keep(entered, max_hold=None).renew_at == 101.0
