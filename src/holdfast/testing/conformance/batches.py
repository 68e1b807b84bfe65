"""Many requests at once: answered as if one after the other, each for itself."""

from __future__ import annotations

from typing import Any

from holdfast.core.access import GrantAccess, ListAccess
from holdfast.core.requests import (
    Acquire,
    Broken,
    Busy,
    Deadlocked,
    Granted,
    History,
    Inspect,
    NotHeld,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    RenewLease,
    Request,
    Signal,
    Watch,
    Withdraw,
    Withdrawn,
)
from holdfast.core.requests import Break as BreakLock
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore, once


def wants(attempt: str, *, now: float, key: str = "nightly", wait: bool = False, **given: Any) -> Acquire:
    """Return a request for a lock."""
    owner = given.pop("owner", attempt)
    return Acquire(key, attempt, owner, 10.0, CLIENT, wait=wait, patience=1000.0, now=now, **given)


class Batches:
    """What one request does, the next of the group sees; and whoever is concerned is told afterwards."""

    def test_answers_come_in_the_order_of_the_requests(self, ask: Asker) -> None:
        answers = ask.store.execute_many(
            [
                wants("a-1", now=100.0),
                wants("b-1", now=100.0),
                wants("c-1", now=100.0, wait=True),
                wants("a-1", now=101.0, key="weekly"),
                Inspect("nightly", now=101.0),
                Inspect("never", now=101.0),
            ]
        )
        kinds = [Granted, Busy, Queued, Granted]
        assert [type(answer) for answer in answers[:4]] == kinds
        view, never = answers[4:]
        assert (view.holder.owner, view.waiting) == ("a-1", 1)
        assert never is None

    def test_a_lock_goes_through_many_hands_in_one_group(self, ask: Asker) -> None:
        """P1, P7: token by token, in the order of the queue."""
        tokens = [100_000_000 + number for number in range(4)]
        asked: list[Request[Any]] = [wants(f"a-{n}", now=100.0, wait=True) for n in range(4)]
        for number, token in enumerate(tokens):
            asked += [
                wants(f"a-{number}", now=100.0, wait=True),
                Release("nightly", f"a-{number}", token, now=100.0),
            ]
        answers = ask.store.execute_many(asked)
        assert [answer.position for answer in answers[1:4]] == [1, 2, 3]
        claims, releases = answers[4::2], answers[5::2]
        assert [claim.token for claim in claims] == tokens
        assert releases == [*(Released(0, f"a-{number}") for number in (1, 2, 3)), Released()]

    def test_all_kinds_of_requests_may_be_in_a_group(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        access = GrantAccess("5f1e00000001", "ci", "0" * 64, ("admin:*",), now=100.0)
        answers = ask.store.execute_many(
            [
                wants("b-1", now=101.0, wait=True),
                wants("c-1", now=101.0, wait=True),
                Renew(
                    (RenewLease("nightly", "a-1", token, 10.0),),
                    (RefreshTicket("nightly", "b-1", 1000.0),),
                    now=102.0,
                ),
                BreakLock("nightly", "olga", "stuck", now=103.0),
                Withdraw("nightly", "b-1", now=104.0),
                Withdraw("nightly", "b-1", now=104.0),
                History("nightly"),
                access,
                ListAccess(now=105.0),
                Watch("", after=0),
            ]
        )
        assert [type(each) for each in answers[:2]] == [Queued, Queued]
        assert (answers[2].leases[0].outcome, answers[2].tickets[0].outcome) == ("renewed", "waiting")
        assert isinstance(answers[3], Broken)
        assert answers[4:6] == [Withdrawn("c-1"), NotHeld("already")]
        assert [event.kind for event in answers[6]] == ["broken"]
        assert answers[8] == (answers[7],)
        assert [event.kind for event in answers[9].events] == ["broken"]

    def test_a_circle_that_closes_within_a_group_is_found(self, ask: Asker) -> None:
        answers = ask.store.execute_many(
            [
                wants("a-1", now=100.0, key="k1", owner="ann"),
                wants("b-1", now=100.0, key="k2", owner="bob"),
                wants("a-2", now=101.0, key="k2", owner="ann", wait=True),
                wants("b-2", now=102.0, key="k1", owner="bob", wait=True),
            ]
        )
        assert [type(answer) for answer in answers] == [Granted, Granted, Queued, Deadlocked]

    def test_a_group_can_be_repeated(self, ask: Asker) -> None:
        """P6: after a lost answer the whole of it is asked again."""
        group: list[Request[Any]] = [
            wants("a-1", now=100.0),
            wants("b-1", now=100.0, wait=True),
            Withdraw("weekly", "c-1", now=100.0),
        ]
        first, second, _ = ask.store.execute_many(group)
        again = ask.store.execute_many(group)
        assert again == [first, second, NotHeld("already")]
        assert ask.look(now=100.0).waiting == 1

    def test_what_a_group_did_all_clients_see(self, make_store: MakeStore) -> None:
        mine, other = make_store(CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.execute_many([wants(f"a-{n}", now=100.0, key=f"k{n}") for n in range(20)])
        assert len(other.page(now=101.0, state="held").locks) == 20

    def test_whoever_is_concerned_is_told_when_it_is_true(self, make_store: MakeStore) -> None:
        """A signal that comes before the commit would have its receiver ask in vain."""
        store, other = make_store(CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        seen: list[tuple[Signal, str | None]] = []

        def look(signal: Signal) -> None:
            holder = other.look(now=103.0, key=signal.key).holder
            seen.append((signal, holder.owner if holder else None))

        store.listen(once(look))
        first, second = store.execute_many([wants("a-1", now=100.0, key=key) for key in ("k1", "k2")])
        store.execute_many([wants("b-1", now=101.0, key=key, wait=True) for key in ("k1", "k2")])
        store.execute_many(
            [
                Release("k1", "a-1", first.token, now=102.0),
                Release("k2", "a-1", second.token, now=102.0),
                wants("b-1", now=102.5, key="k2", wait=True),
            ]
        )
        assert seen == [(Signal("granted", "k1", "b-1"), "b-1"), (Signal("granted", "k2", "b-1"), "b-1")]

    def test_a_group_may_be_empty_or_of_one(self, ask: Asker) -> None:
        assert ask.store.execute_many([]) == []
        (granted,) = ask.store.execute_many([wants("a-1", now=100.0)])
        assert isinstance(granted, Granted)
