"""The checker is checked: each planted flaw is found, and called by the right name."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.family import PLAIN, Failure, Outcome, Terms
from holdfast.core.keeper import Kept
from holdfast.core.plans import Grant
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Client,
    Done,
    Downgrade,
    Failed,
    Granted,
    Holder,
    LeaseAnswer,
    NotHeld,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    Renewed,
    RenewLease,
    Request,
    Resize,
    Resized,
    Signal,
    Sweep,
    Swept,
    TicketAnswer,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from proof.simulation import Checker, SimulationFailed, Step, Violation, simulate
from proof.simulation.observed import NOTHING, Hold, ObservedMemory, State, Ticket
from proof.simulation.step import EPOCH
from proof.simulation.worker import Worker
from tests.explorer.plants import plant

KEY = "key"
HERE = Client("here", "host", 1)
SECOND = 1_000_000
NOW = micros(EPOCH) + 100 * SECOND
LATER = NOW + 10 * SECOND
CLAIM = 5 * SECOND
ANN = Holder("ann", "host", 1, NOW, 0.0)


def acquire(
    attempt: str, owner: str, *, ttl: float = 10.0, wait: bool = True, terms: Terms = PLAIN
) -> Acquire:
    return Acquire(KEY, attempt, owner, ttl, HERE, wait, terms=terms)


def held(token: int, owner: str, terms: Terms = PLAIN, **ends: int) -> State:
    holds = {attempt: Hold(end, True, owner, token, terms) for attempt, end in ends.items()}
    return State(token, holds, {}, 0, len(holds))


def handed(token: int, attempt: str, end: int) -> State:
    return State(token, {attempt: Hold(end, False, f"{attempt}'s owner", token)}, {}, 0, 1)


def won(attempt: str, token: int) -> Signal:
    """What the winner of a hand-over is told."""
    return Signal("granted", KEY, attempt, CLAIM / 1e6, token=token, at=NOW / 1e6)


def together(terms: Terms, permits: int = 0, **tokens: int) -> State:
    """Several leases at once, each of an owner of its own."""
    holds = {a: Hold(LATER, True, f"{a}'s owner", token, terms) for a, token in tokens.items()}
    return State(max(tokens.values()), holds, {}, 0, len(holds), permits)


def free(token: int) -> State:
    return State(token, {}, {}, 0, 0)


def with_tickets(state: State, terms: Terms = PLAIN, **ends: int) -> State:
    tickets = {a: Ticket(f"{a}'s owner", "there", CLAIM, end, terms) for a, end in ends.items()}
    return state._replace(tickets=tickets, waiters=len(tickets))


class Story:
    """A history told step by step, each beginning where the one before ended."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.state = NOTHING

    def then(
        self, request: Request[Any], answer: Any, after: State, *signals: Signal, now: int = NOW
    ) -> None:
        posted = [("there", signal) for signal in signals]
        step = Step(KEY, request, answer, now, self.state, after, posted)
        self.checker.step(step)
        self.state = after

    def breaks(self, invariant: str, *args: Any, **kwargs: Any) -> None:
        with pytest.raises(Violation) as caught:
            self.then(*args, **kwargs)
        assert caught.value.invariant == invariant

    def ann_holds(self) -> None:
        self.then(acquire("a", "ann"), Granted(NOW, 10.0), held(NOW, "ann", a=LATER))

    def two_hold(self, terms: Terms, permits: int = 0) -> None:
        first, second = acquire("a", "a's owner", terms=terms), acquire("b", "b's owner", terms=terms)
        self.then(first, Granted(NOW, 10.0), together(terms, permits, a=NOW))
        self.then(second, Granted(NOW + 1, 10.0), together(terms, permits, a=NOW, b=NOW + 1))

    def waits(self, attempt: str, position: int, terms: Terms = PLAIN, **ends: int) -> None:
        after = with_tickets(self.state, terms, **ends)
        owner = f"{attempt}'s owner"
        self.then(acquire(attempt, owner, terms=terms), Queued(position, ANN, 10.0), after)


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_honest_history_breaks_nothing(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    given = handed(NOW + 1, "b", NOW + CLAIM)
    story.then(Release(KEY, "a", NOW), Released(0, "b's owner"), given, won("b", NOW + 1))
    claimed = held(NOW + 1, "b's owner", b=LATER)
    story.then(acquire("b", "b's owner"), Granted(NOW + 1, 10.0), claimed)
    story.then(Withdraw(KEY, "b"), Withdrawn(), free(NOW + 1))
    assert story.checker.counts["handed over"] == 1
    assert story.checker.counts["claimed"] == 1


def test_a_new_lease_with_an_old_token(story: Story):
    story.ann_holds()
    story.then(Release(KEY, "a", NOW), Released(), free(NOW))
    story.breaks("1 tokens", acquire("b", "bob"), Granted(NOW, 10.0), held(NOW, "bob", b=LATER))


def test_a_token_that_restarts_after_a_sweep(story: Story):
    story.ann_holds()
    story.then(Release(KEY, "a", NOW), Released(), free(NOW))
    story.then(Sweep(), Swept(locks=1), NOTHING)
    story.breaks("1 tokens", acquire("b", "bob"), Granted(1, 10.0), held(1, "bob", b=LATER))


def test_a_token_that_changes_within_a_lease(story: Story):
    story.ann_holds()
    request = Renew((RenewLease(KEY, "a", NOW, 10.0),))
    answer = Renewed((LeaseAnswer("renewed", 10.0),))
    story.breaks("1 tokens", request, answer, held(NOW + 1, "ann", a=LATER))


def test_a_lock_that_is_taken_from_a_live_holder(story: Story):
    story.ann_holds()
    after = held(NOW + 1, "bob", b=LATER)
    story.breaks("2 exclusion", acquire("b", "bob"), Granted(NOW + 1, 10.0), after)


def test_re_entry_by_somebody_else(story: Story):
    story.ann_holds()
    after = held(NOW, "ann", a=LATER, b=LATER)
    story.breaks("2 exclusion", acquire("b", "bob"), Granted(NOW, 10.0), after)


def test_a_release_that_ends_another_hold(story: Story):
    story.ann_holds()
    story.then(acquire("b", "ann"), Granted(NOW, 10.0, 2), held(NOW, "ann", a=LATER, b=LATER))
    story.breaks("4 scope", Release(KEY, "b", NOW), Released(), free(NOW))


def test_a_renewal_that_moves_another_end(story: Story):
    story.ann_holds()
    story.then(acquire("b", "ann"), Granted(NOW, 10.0, 2), held(NOW, "ann", a=LATER, b=LATER))
    request = Renew((RenewLease(KEY, "b", NOW, 10.0),))
    after = held(NOW, "ann", a=LATER + SECOND, b=LATER + SECOND)
    story.breaks("4 scope", request, Renewed((LeaseAnswer("renewed", 10.0),)), after, now=NOW + SECOND)


@pytest.mark.parametrize(
    "told",
    [
        Signal("granted", KEY, "b"),
        Signal("granted", KEY, "b", CLAIM / 1e6, token=NOW, at=NOW / 1e6),
        Signal("granted", KEY, "b", CLAIM / 1e6 + 1.0, token=NOW + 1, at=NOW / 1e6),
    ],
    ids=["no token", "another token", "too long"],
)
def test_a_winner_that_is_told_something_else_than_it_won(story: Story, told: Signal):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    given = handed(NOW + 1, "b", NOW + CLAIM)
    story.breaks("signals", Release(KEY, "a", NOW), Released(0, "b's owner"), given, told)


def test_a_hand_over_for_longer_than_the_claim_window(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    given = handed(NOW + 1, "b", LATER)
    told = Signal("granted", KEY, "b")
    story.breaks("4 scope", Release(KEY, "a", NOW), Released(0, "b's owner"), given, told)


def test_a_repeated_request_with_a_second_effect(story: Story):
    once, twice = held(NOW, "ann", a=LATER), held(NOW, "ann", a=LATER, b=LATER)
    granted = Granted(NOW, 10.0)
    with pytest.raises(Violation, match="5 repetition"):
        story.checker.repeated(acquire("a", "ann"), granted, granted, once, twice)
    with pytest.raises(Violation, match="5 repetition"):
        story.checker.repeated(Release(KEY, "a", NOW), Released(), Released(), free(NOW), free(NOW))
    story.checker.repeated(Release(KEY, "a", NOW), Released(), NotHeld("already"), free(NOW), free(NOW))


def test_a_grant_past_a_live_ticket(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    story.waits("c", 2, b=LATER + CLAIM, c=LATER + CLAIM)
    given = handed(NOW + 1, "c", NOW + CLAIM)
    after = with_tickets(given, b=LATER + CLAIM)
    told = Signal("granted", KEY, "c")
    story.breaks("6 fifo", Release(KEY, "a", NOW), Released(0, "c's owner"), after, told)


def test_a_queue_in_another_order_than_they_came(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    story.waits("c", 2, b=LATER + CLAIM, c=LATER + CLAIM)
    after = with_tickets(story.state, c=LATER + CLAIM, b=LATER + CLAIM)
    story.breaks("6 fifo", Release(KEY, "x", NOW), NotHeld("unknown"), after)


def test_a_dead_ticket_that_is_handed_the_lock(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=NOW + 15 * SECOND)
    now = NOW + 20 * SECOND
    given = handed(now, "b", now + CLAIM)
    request, told = Withdraw(KEY, "x"), Signal("granted", KEY, "b")
    story.breaks("6 fifo", request, Withdrawn(), given, told, now=now)


def test_a_free_lock_with_a_live_ticket(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    after = with_tickets(free(NOW), b=LATER + CLAIM)
    story.breaks("7 served", Release(KEY, "a", NOW), Released(), after)


def test_a_request_that_does_not_settle(story: Story):
    story.ann_holds()
    story.breaks("7 served", Withdraw(KEY, "x"), Withdrawn(), story.state, now=LATER)


def test_an_ended_attempt_that_holds_again(story: Story):
    story.ann_holds()
    story.then(Release(KEY, "a", NOW, retire=True), Released(), free(NOW))
    after = held(NOW + 1, "ann", a=LATER)
    story.breaks("8 ended", acquire("a", "ann"), Granted(NOW + 1, 10.0), after)


def test_a_wrong_number_of_waiters(story: Story):
    story.ann_holds()
    after = with_tickets(story.state, b=LATER + CLAIM)._replace(waiters=0)
    story.breaks("9 counts", acquire("b", "b's owner"), Queued(1, ANN, 10.0), after)


def test_a_renewal_that_revives_an_expired_lease(story: Story):
    story.ann_holds()
    request = Renew((RenewLease(KEY, "a", NOW, 10.0),))
    answer = Renewed((LeaseAnswer("renewed", 10.0),))
    story.breaks("answers", request, answer, story.state, now=LATER)


def test_a_ticket_that_is_told_to_wait_for_nothing(story: Story):
    story.ann_holds()
    request = Renew((), (RefreshTicket(KEY, "b", 15.0),))
    story.breaks("answers", request, Renewed((), (TicketAnswer("waiting"),)), story.state)


def test_a_winner_that_is_not_told(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    given = handed(NOW + 1, "b", NOW + CLAIM)
    story.breaks("signals", Release(KEY, "a", NOW), Released(0, "b's owner"), given)


def test_a_head_that_is_not_told(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    story.waits("c", 2, b=LATER + CLAIM, c=LATER + CLAIM)
    patient = Ticket("c's owner", "there", 60 * SECOND, LATER + CLAIM)
    story.state = story.state._replace(tickets=story.state.tickets | {"c": patient})
    after = story.state._replace(tickets={"c": patient}, waiters=1)
    story.breaks("signals", Withdraw(KEY, "b"), Withdrawn(), after)


def test_a_head_that_need_not_be_told(story: Story):
    """Its next heartbeat comes long before the lease ends."""
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    story.waits("c", 2, b=LATER + CLAIM, c=LATER + CLAIM)
    story.then(Withdraw(KEY, "b"), Withdrawn(), with_tickets(story.state, c=LATER + CLAIM))


def test_a_robbed_holder_that_is_not_told(story: Story):
    story.ann_holds()
    story.breaks("signals", Break(KEY, "operator", "stuck"), Broken(ANN), free(NOW))


def test_an_attempt_that_leaves_something_behind(story: Story):
    story.ann_holds()
    with pytest.raises(Violation, match="undo"):
        story.checker.finished(KEY, "a", story.state)


# On other than plain terms.

SHARED = Terms(mode="shared")
OPERATION = Terms(operation=True)
TWO = Terms(mode="permits", permits=2)
B_WINS = Signal("granted", KEY, "b")
OVER = Signal("over", KEY, "")


def test_readers_and_then_a_writer_break_nothing(story: Story):
    story.two_hold(SHARED)
    story.waits("c", 1, c=LATER + CLAIM)
    alone = with_tickets(together(SHARED, b=NOW + 1), c=LATER + CLAIM)
    story.then(Release(KEY, "a", NOW), Released(), alone)
    given = handed(NOW + 2, "c", NOW + CLAIM)
    story.then(Release(KEY, "b", NOW + 1), Released(0, "c's owner"), given, won("c", NOW + 2))
    assert story.checker.counts["shared together"] == 1


def test_a_writer_beside_a_reader(story: Story):
    story.then(acquire("a", "a's owner", terms=SHARED), Granted(NOW, 10.0), together(SHARED, a=NOW))
    after = together(SHARED, a=NOW)
    after.holds["b"] = Hold(LATER, True, "bob", NOW + 1)
    request, granted = acquire("b", "bob"), Granted(NOW + 1, 10.0)
    story.breaks("2 exclusion", request, granted, after._replace(token=NOW + 1, counted=2))


def test_more_permits_than_there_are(story: Story):
    story.two_hold(TWO, 2)
    after = together(TWO, 2, a=NOW, b=NOW + 1, c=NOW + 2)
    story.breaks("2 exclusion", acquire("c", "c's owner", terms=TWO), Granted(NOW + 2, 10.0), after)


def test_permits_that_an_operator_took_away_are_still_held(story: Story):
    story.two_hold(TWO, 2)
    story.then(Resize(KEY, 1, "operator"), Resized(1, 2), story.state._replace(permits=1))
    renewal = Renew((RenewLease(KEY, "a", NOW, 10.0),))
    story.then(renewal, Renewed((LeaseAnswer("renewed", 10.0),)), story.state)


def test_two_leases_with_one_token(story: Story):
    story.then(acquire("a", "a's owner", terms=SHARED), Granted(NOW, 10.0), together(SHARED, a=NOW))
    after = together(SHARED, a=NOW, b=NOW)
    story.breaks("2 exclusion", acquire("b", "b's owner", terms=SHARED), Granted(NOW, 10.0), after)


def test_a_reader_that_passes_a_writer(story: Story):
    story.then(acquire("a", "a's owner", terms=SHARED), Granted(NOW, 10.0), together(SHARED, a=NOW))
    story.waits("b", 1, b=LATER + CLAIM)
    after = with_tickets(together(SHARED, a=NOW, c=NOW + 1), b=LATER + CLAIM)
    story.breaks("6 fifo", acquire("c", "c's owner", terms=SHARED), Granted(NOW + 1, 10.0), after)


def test_readers_that_are_let_in_in_another_order(story: Story):
    story.ann_holds()
    story.waits("b", 1, SHARED, b=LATER + CLAIM)
    story.waits("c", 2, SHARED, b=LATER + CLAIM, c=LATER + CLAIM)
    holds = {
        "c": Hold(NOW + CLAIM, False, "c's owner", NOW + 1, SHARED),
        "b": Hold(NOW + CLAIM, False, "b's owner", NOW + 2, SHARED),
    }
    after = State(NOW + 2, holds, {}, 0, 2)
    told = Signal("granted", KEY, "c")
    story.breaks("6 fifo", Release(KEY, "a", NOW), Released(0, "c's owner"), after, told, B_WINS)


def test_a_reader_that_is_not_let_in_after_a_downgrade(story: Story):
    story.ann_holds()
    story.waits("b", 1, SHARED, b=LATER + CLAIM)
    after = with_tickets(held(NOW, "ann", SHARED, a=LATER), SHARED, b=LATER + CLAIM)
    story.breaks("7 served", Downgrade(KEY, "a", NOW), Granted(NOW, 10.0), after)


def test_a_shut_lock_that_is_waited_for_breaks_nothing(story: Story):
    story.ann_holds()
    story.waits("b", 1, b=LATER + CLAIM)
    after = with_tickets(free(NOW), b=LATER + CLAIM)._replace(shut_until=LATER + SECOND)
    told = Signal("head", KEY, "b", 1.0)
    story.then(Withdraw(KEY, "x"), Withdrawn(), after, told, now=LATER)


def test_an_operation_that_is_done_is_told_to_all(story: Story):
    doing = acquire("a", "ann", terms=OPERATION)
    story.then(doing, Granted(NOW, 10.0), held(NOW, "ann", OPERATION, a=LATER))
    story.waits("b", 1, OPERATION, b=LATER + CLAIM)
    done = Release(KEY, "a", NOW, outcome=Outcome(True, "1"))
    story.then(done, Released(0, None, 1), free(NOW), OVER)
    asks = acquire("b", "b's owner", terms=OPERATION)
    story.then(asks, Done("1", NOW), free(NOW))
    story.breaks("10 outcomes", asks, Done("2", NOW), free(NOW))


def test_an_outcome_that_somebody_is_not_told(story: Story):
    doing = acquire("a", "ann", terms=OPERATION)
    story.then(doing, Granted(NOW, 10.0), held(NOW, "ann", OPERATION, a=LATER))
    story.waits("b", 1, OPERATION, b=LATER + CLAIM)
    done = Release(KEY, "a", NOW, outcome=Outcome(True, "1"))
    story.then(done, Released(0, None, 1), free(NOW), OVER)
    anew = held(NOW + 1, "b's owner", OPERATION, b=LATER)
    asks = acquire("b", "b's owner", terms=OPERATION)
    story.breaks("8 ended", asks, Granted(NOW + 1, 10.0), anew)


def test_somebody_who_inherits_what_is_done(story: Story):
    doing = acquire("a", "ann", terms=OPERATION)
    story.then(doing, Granted(NOW, 10.0), held(NOW, "ann", OPERATION, a=LATER))
    story.waits("b", 1, OPERATION, b=LATER + CLAIM)
    done = Release(KEY, "a", NOW, outcome=Outcome(True, "1"))
    given = handed(NOW + 1, "b", NOW + CLAIM)
    story.breaks("10 outcomes", done, Released(0, "b's owner"), given, won("b", NOW + 1))


def test_a_failure_that_nobody_was_told_of(story: Story):
    failed = Failed((Failure("ann", "host", 1, NOW, "no"),))
    story.breaks("10 outcomes", acquire("b", "bob", terms=OPERATION), failed, NOTHING)


def test_a_ticket_that_ends_without_a_word(story: Story):
    doing = acquire("a", "ann", terms=OPERATION)
    story.then(doing, Granted(NOW, 10.0), held(NOW, "ann", OPERATION, a=LATER))
    story.waits("b", 1, OPERATION, b=LATER + CLAIM)
    done = Release(KEY, "a", NOW, outcome=Outcome(True, "1"))
    story.breaks("4 scope", done, Released(0, None, 1), free(NOW))


# What clients believe.


class Local:
    """A client whose clock is right."""

    def true_time(self, local: float) -> float:
        return local


def kept(attempt: str, token: int, until: float) -> Kept:
    grant = Grant(KEY, attempt, "somebody", token, 10.0, until)
    return Kept(grant, renew_at=until, margin=0.1)


def test_trust_past_the_end_in_the_store(story: Story):
    story.ann_holds()
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "a")
    with pytest.raises(Violation, match="3 trust"):
        story.checker.believes(Local(), kept("a", NOW, 110.1), 100.0, story.state, "a")


def test_trust_in_a_hold_that_is_gone(story: Story):
    story.ann_holds()
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "a")
    story.breaks("3 trust", Release(KEY, "a", NOW), Released(), free(NOW))


def test_two_believers(story: Story):
    story.ann_holds()
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "a")
    with pytest.raises(Violation, match="3 trust"):
        story.checker.believes(Local(), kept("b", NOW + 1, 120.0), 105.0, story.state, "b")


def test_two_readers_may_believe(story: Story):
    story.two_hold(SHARED)
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "a")
    story.checker.believes(Local(), kept("b", NOW + 1, 109.9), 100.0, story.state, "b")


def test_a_lease_is_used_by_those_inside_of_one_block_only(story: Story):
    """Whatever the owner is called: a stranger that has its name is in the store's eyes the same owner."""
    story.ann_holds()
    story.then(acquire("b", "ann"), Granted(NOW, 10.0), held(NOW, "ann", a=LATER, b=LATER))
    story.then(acquire("c", "ann"), Granted(NOW, 10.0), held(NOW, "ann", a=LATER, b=LATER, c=LATER))
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "one block")
    story.checker.believes(Local(), kept("b", NOW, 109.9), 100.0, story.state, "one block")
    with pytest.raises(Violation, match="2 exclusion: c is in key in the context another, by the lease"):
        story.checker.believes(Local(), kept("c", NOW, 109.9), 100.0, story.state, "another")


def test_an_operator_may_end_what_somebody_trusts(story: Story):
    """The holder learns of a break when it asks; only fencing protects what it does until then."""
    story.ann_holds()
    story.checker.believes(Local(), kept("a", NOW, 109.9), 100.0, story.state, "a")
    story.then(Break(KEY, "operator", "stuck"), Broken(ANN), free(NOW), Signal("lost", KEY, "a"))


# A whole run on a store with a flaw.


class Generous(ObservedMemory):
    """Says yes to whoever asks."""

    def execute(self, request: Request[Any]) -> Any:
        answer = super().execute(request)
        return Granted(1, request.ttl) if isinstance(request, Acquire) else answer


class Deaf(ObservedMemory):
    """Never hears of a withdrawal, and says that it did."""

    def execute(self, request: Request[Any]) -> Any:
        return Withdrawn() if isinstance(request, Withdraw) else super().execute(request)


class Broke(ObservedMemory):
    """Raises what a store may not raise."""

    def execute(self, request: Request[Any]) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("flawed", "invariants"),
    [(Generous, {"1 tokens"}), (Deaf, {"answers", "5 repetition"}), (Broke, {"answers"})],
)
def test_a_flawed_store_is_found_out(flawed: type[ObservedMemory], invariants: set[str]):
    with pytest.raises(SimulationFailed) as caught:
        [simulate(seed, make_store=lambda profile: flawed(profile.history)) for seed in range(5)]
    assert caught.value.invariant in invariants


def test_owners_that_are_workers_and_not_blocks_are_found_out(monkeypatch: pytest.MonkeyPatch):
    """The flaw is: who has passed a lease on enters it again, while the other one is still in it."""
    plant(monkeypatch, Worker, "_owner", {"return self._context": 'return f"worker-{id(self)}"'})
    with pytest.raises(SimulationFailed, match="by the lease that") as caught:
        [simulate(seed) for seed in range(20)]
    assert caught.value.invariant == "2 exclusion"


def test_a_failure_says_how_to_replay_it():
    with pytest.raises(SimulationFailed) as caught:
        simulate(11, make_store=lambda profile: Generous(profile.history))
    text = str(caught.value)
    assert "seed 11 on memory breaks «1 tokens» at" in text
    assert "make simulate START=11 SEEDS=1 STORE=memory" in text
    assert "acquire key:" in text
    assert len(text.splitlines()) <= 55
