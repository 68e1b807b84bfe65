"""Leases on all terms side by side: renewed in one batch, shown, and swept."""

from __future__ import annotations

from holdfast.core.family import Terms
from holdfast.core.requests import Busy, Granted, LeaseAnswer, RenewLease
from holdfast.testing.conformance.asker import CLIENT, OPERATION, SHARED, Asker, permits

SLOW = Terms(delay=30.0)


class MixedTerms:
    """Whatever the terms of a lease, it is renewed, seen and swept as any other."""

    def test_leases_on_all_terms_are_renewed_in_one_batch(self, ask: Asker) -> None:
        tokens = self._all_terms(ask)
        batch = [RenewLease(key, attempt, token, 20.0) for (key, attempt), token in tokens.items()]
        assert ask.renew_all(batch, now=105.0) == (LeaseAnswer("renewed", 20.0),) * len(batch)
        assert ask.renew_all(batch, now=124.999999) == (LeaseAnswer("renewed", 20.0),) * len(batch)

    def test_what_lasts_longer_is_held(self, ask: Asker) -> None:
        tokens = self._all_terms(ask)
        batch = [RenewLease(key, attempt, token, 2.0) for (key, attempt), token in tokens.items()]
        assert ask.renew_all(batch, now=105.0) == (LeaseAnswer("held", 5.0),) * len(batch)

    def test_every_lease_of_a_batch_has_its_own_answer(self, ask: Asker) -> None:
        tokens = self._all_terms(ask)
        ask.release("r-1", tokens["files", "r-1"], now=101.0, key="files")
        ask.break_(now=101.0, key="gpu", token=tokens["gpu", "p-2"])
        ask.succeed("o-1", tokens["pull:x", "o-1"], now=101.0, key="pull:x")
        batch = [RenewLease(key, attempt, token, 10.0) for (key, attempt), token in tokens.items()]
        answers = dict(zip(tokens, ask.renew_all(batch, now=102.0), strict=True))
        lost = {name: answer for name, answer in answers.items() if answer.outcome == "lost"}
        assert lost.keys() == {("files", "r-1"), ("gpu", "p-2"), ("pull:x", "o-1")}
        assert lost["gpu", "p-2"] == LeaseAnswer("lost", why="broken", by="olga", reason="stuck")
        assert lost["files", "r-1"].why == "already"
        assert lost["pull:x", "o-1"].why == "already"
        assert {a for name, a in answers.items() if name not in lost} == {LeaseAnswer("renewed", 10.0)}

    def test_one_that_expired_is_lost_and_those_beside_it_are_not(self, ask: Asker) -> None:
        """R3, though nobody took over."""
        short = ask.take("r-1", now=100.0, terms=SHARED, ttl=5.0).token
        long = ask.take("r-2", now=100.0, terms=SHARED, ttl=10.0).token
        answers = ask.renew_all(
            [RenewLease("nightly", "r-1", short, 10.0), RenewLease("nightly", "r-2", long, 10.0)], now=105.0
        )
        assert [answer.outcome for answer in answers] == ["lost", "renewed"]
        assert answers[0].why in ("expired", "taken over")

    def test_all_terms_expire(self, ask: Asker) -> None:
        tokens = self._all_terms(ask)
        batch = [RenewLease(key, attempt, token, 10.0) for (key, attempt), token in tokens.items()]
        assert {answer.outcome for answer in ask.renew_all(batch, now=110.0)} == {"lost"}

    def test_sweeping_ends_what_expired(self, ask: Asker) -> None:
        self._all_terms(ask)
        for key in ("nightly", "files", "gpu", "pull:x"):
            ask.queue("w-1", now=101.0, key=key, owner=f"w of {key}")
        assert ask.sweep(now=110.0).expired >= 5
        for key in ("nightly", "files", "gpu", "pull:x"):
            holder = ask.look(now=110.0, key=key).holder
            assert holder is not None
            assert (holder.owner, holder.claimed) == (f"w of {key}", False)

    def test_sweeping_leaves_what_is_held(self, ask: Asker) -> None:
        tokens = self._all_terms(ask)
        ask.sweep(now=105.0, idle=0.0)
        batch = [RenewLease(key, attempt, token, 10.0) for (key, attempt), token in tokens.items()]
        assert {answer.outcome for answer in ask.renew_all(batch, now=106.0)} == {"renewed"}

    def test_looking_shows_all_who_hold_it(self, ask: Asker) -> None:
        first = ask.take("p-1", now=100.0, owner="ann", terms=permits(4, take=2)).token
        second = ask.take("p-2", now=101.0, owner="bob", terms=permits(4)).token
        view = ask.look(now=103.0)
        assert (view.mode, view.permits, view.holds, view.token) == ("permits", 4, 2, second)
        assert [(h.owner, h.token, h.take, h.held_for) for h in view.holders] == [
            ("ann", first, 2, 3.0),
            ("bob", second, 1, 2.0),
        ]
        assert view.holder == view.holders[0]
        assert {(holder.host, holder.pid) for holder in view.holders} == {(CLIENT.host, CLIENT.pid)}

    def test_the_first_hundred_holders_are_shown_and_all_are_counted(self, ask: Asker) -> None:
        for number in range(103):
            ask.take(f"r-{number}", now=100.0, terms=SHARED)
        view = ask.look(now=100.0)
        assert view.holds == 103
        assert [holder.owner for holder in view.holders] == [f"r-{number}" for number in range(100)]

    def test_an_owner_with_two_holds_is_one_holder(self, ask: Asker) -> None:
        ask.take("r-1", now=100.0, owner="ann", terms=SHARED)
        ask.take("r-2", now=100.0, owner="ann", terms=SHARED)
        ask.take("r-3", now=100.0, owner="bob", terms=SHARED)
        view = ask.look(now=100.0)
        assert [holder.owner for holder in view.holders] == ["ann", "bob"]
        assert view.holds == 3

    def test_a_list_shows_mode_and_permits_and_no_holders(self, ask: Asker) -> None:
        self._all_terms(ask)
        views = {view.key: view for view in ask.page(now=101.0).locks}
        assert {key: (view.mode, view.permits, view.holds) for key, view in views.items()} == {
            "nightly": ("exclusive", 0, 1),
            "files": ("shared", 0, 2),
            "gpu": ("permits", 4, 2),
            "pull:x": ("exclusive", 0, 1),
            "slow": ("exclusive", 0, 1),
        }
        assert {view.holders for view in views.values()} == {()}

    def test_a_list_by_owner_finds_readers(self, ask: Asker) -> None:
        """R5: also who is not the first of them."""
        for key in ("one", "two"):
            ask.take("r-1", now=100.0, key=key, owner="ann", terms=SHARED)
        token = ask.take("r-2", now=100.0, key="two", owner="bob", terms=SHARED).token
        ask.take("p-1", now=100.0, key="three", owner="cy", terms=permits(2))
        ask.take("p-2", now=100.0, key="three", owner="bob", terms=permits(2))
        assert [view.key for view in ask.page(now=101.0, owner="bob").locks] == ["three", "two"]
        assert [view.key for view in ask.page(now=101.0, owner="ann").locks] == ["one", "two"]
        ask.release("r-2", token, now=102.0, key="two")
        assert [view.key for view in ask.page(now=102.0, owner="bob").locks] == ["three"]

    def test_a_lock_changes_its_terms_with_its_leases(self, ask: Asker) -> None:
        """P1, P2: it is what its leases are, one after the other."""
        previous = 0
        for attempt, terms, mode in (
            ("a-1", Terms(), "exclusive"),
            ("a-2", SHARED, "shared"),
            ("a-3", permits(2), "permits"),
            ("a-4", OPERATION, "exclusive"),
            ("a-5", SHARED, "shared"),
        ):
            granted = ask.take(attempt, now=100.0, terms=terms)
            assert granted.token > previous
            previous = granted.token
            assert ask.look(now=100.0).mode == mode
            ask.release(attempt, granted.token, now=100.0)

    def test_waiters_on_different_terms_are_served_in_their_order(self, ask: Asker) -> None:
        """P7."""
        token = ask.take("a-1", now=100.0).token
        queue = [
            ("r-1", SHARED),
            ("p-1", permits(2)),
            ("p-2", permits(2)),
            ("a-2", Terms()),
            ("r-2", SHARED),
            ("r-3", SHARED),
        ]
        for attempt, terms in queue:
            ask.queue(attempt, now=100.0, terms=terms)
        holders = [("a-1", token)]
        turns: list[list[str]] = []
        while holders:
            for attempt, held in holders:
                ask.release(attempt, held, now=101.0)
            turns.append([attempt for kind, attempt in ask.signals() if kind == "granted"])
            terms_of = dict(queue)
            holders = [(a, ask.take(a, now=101.0, terms=terms_of[a], wait=True).token) for a in turns[-1]]
        assert turns == [["r-1"], ["p-1", "p-2"], ["a-2"], ["r-2", "r-3"], []]

    def test_who_cannot_come_in_is_not_let_in_by_others_coming_and_going(self, ask: Asker) -> None:
        """P2."""
        ask.take("r-1", now=100.0, terms=SHARED)
        token = ask.take("r-2", now=100.0, terms=SHARED).token
        ask.release("r-2", token, now=101.0)
        assert isinstance(ask.acquire("p-1", now=101.0, terms=permits(2)), Busy)
        assert isinstance(ask.acquire("a-1", now=101.0), Busy)
        assert isinstance(ask.acquire("r-2b", now=101.0, terms=SHARED), Granted)

    @staticmethod
    def _all_terms(ask: Asker) -> dict[tuple[str, str], int]:
        leases = {
            ("nightly", "a-1"): Terms(),
            ("files", "r-1"): SHARED,
            ("files", "r-2"): SHARED,
            ("gpu", "p-1"): permits(4, take=2),
            ("gpu", "p-2"): permits(4),
            ("pull:x", "o-1"): OPERATION,
            ("slow", "s-1"): SLOW,
        }
        return {
            (key, attempt): ask.take(attempt, now=100.0, key=key, terms=terms).token
            for (key, attempt), terms in leases.items()
        }
