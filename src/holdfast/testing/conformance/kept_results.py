"""Results that are kept: whoever asks for an operation within that time is told, and does not do it again."""

from __future__ import annotations

from holdfast.core.family import LARGEST_RESULT, Outcome, Terms
from holdfast.core.requests import Broken, Busy, Done, Granted, NotHeld, Queued, Released
from holdfast.testing.conformance.asker import CLIENT, OPERATION, OTHER_CLIENT, Asker, MakeStore

RESULT = '{"path":"/models/7b"}'


class KeptResults:
    """Usable as an idempotency key: done once within that time, as far as it succeeded."""

    def done(self, ask: Asker, *, now: float = 100.0, keep: float = 3600.0, owner: str = "ann") -> int:
        """Have the operation done by somebody; return its token."""
        token = ask.take(f"{owner}-{now}", now=now, owner=owner, terms=OPERATION).token
        ask.succeed(f"{owner}-{now}", token, now=now, result=RESULT, keep=keep)
        return token

    def test_late_comers_are_told_the_result(self, ask: Asker) -> None:
        token = self.done(ask)
        for now, wait in ((100.0, False), (101.0, True), (3699.999999, False)):
            assert ask.acquire(f"b-{now}", now=now, wait=wait, terms=OPERATION) == Done(
                RESULT, token, kept=True
            )
        assert isinstance(ask.acquire("c-1", now=3700.0, terms=OPERATION), Granted)

    def test_a_short_time_is_as_short_as_it_says(self, ask: Asker) -> None:
        """Although those who waited are told for ten minutes."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=100.0, terms=OPERATION)
        ask.succeed("a-1", token, now=101.0, result=RESULT, keep=5.0)
        assert ask.acquire("c-1", now=105.999999, terms=OPERATION) == Done(RESULT, token, kept=True)
        assert isinstance(ask.acquire("c-2", now=106.0, terms=OPERATION), Granted)
        assert ask.acquire("b-1", now=700.0, wait=True, terms=OPERATION) == Done(RESULT, token)

    def test_those_who_waited_are_told_for_ten_minutes_also_if_it_is_done_again(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=100.0, terms=OPERATION)
        ask.succeed("a-1", token, now=101.0, result=RESULT, keep=3600.0)
        ask.break_(now=102.0)
        again = ask.take("c-1", now=103.0, terms=OPERATION).token
        ask.succeed("c-1", again, now=104.0, result="2", keep=3600.0)
        ask.sweep(now=700.0)
        assert ask.acquire("b-1", now=700.9, wait=True, terms=OPERATION) == Done(RESULT, token)
        assert ask.acquire("d-1", now=700.9, wait=True, terms=OPERATION) == Done("2", again, kept=True)

    def test_others_are_told_too(self, make_store: MakeStore) -> None:
        token = self.done(Asker(make_store(CLIENT)))
        elsewhere = Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        assert elsewhere.acquire("b-1", now=101.0, terms=OPERATION) == Done(RESULT, token, kept=True)

    def test_without_it_whoever_comes_later_does_it_again(self, ask: Asker) -> None:
        self.done(ask, keep=0.0)
        assert isinstance(ask.acquire("b-1", now=100.0, terms=OPERATION), Granted)

    def test_a_failure_is_not_kept(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.release("a-1", token, now=101.0, outcome=Outcome(False, "no space left", 3600.0))
        assert isinstance(ask.acquire("b-1", now=102.0, terms=OPERATION), Granted)

    def test_a_plain_lock_of_that_key_is_granted_and_changes_nothing(self, ask: Asker) -> None:
        first = self.done(ask)
        token = ask.take("b-1", now=200.0).token
        assert ask.acquire("c-1", now=201.0, terms=OPERATION) == Done(RESULT, first, kept=True)
        assert isinstance(ask.acquire("d-1", now=201.0), Busy)
        assert ask.release("b-1", token, now=202.0) == Released(0)
        assert ask.acquire("c-2", now=203.0, wait=True, terms=OPERATION) == Done(RESULT, first, kept=True)
        assert ask.look(now=203.0).waiting == 0

    def test_the_owner_of_a_plain_lock_is_told_too(self, ask: Asker) -> None:
        first = self.done(ask)
        ask.take("b-1", now=200.0, owner="bob")
        assert ask.acquire("b-2", now=201.0, owner="bob", terms=OPERATION) == Done(RESULT, first, kept=True)

    def test_who_is_told_leaves_no_trace(self, ask: Asker) -> None:
        self.done(ask)
        before = ask.look(now=200.0)
        ask.acquire("b-1", now=200.0, wait=True, terms=OPERATION)
        assert ask.look(now=200.0) == before
        assert (before.state, before.waiting, before.holds) == ("free", 0, 0)

    def test_it_is_told_although_the_lock_is_shut(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=Terms(operation=True, at_least=30.0)).token
        ask.succeed("a-1", token, now=101.0, result=RESULT, keep=60.0)
        assert ask.acquire("b-1", now=102.0, terms=OPERATION) == Done(RESULT, token, kept=True)
        assert isinstance(ask.acquire("c-1", now=102.0), Busy)
        assert ask.acquire("b-2", now=160.9, terms=OPERATION) == Done(RESULT, token, kept=True)
        assert isinstance(ask.acquire("b-3", now=161.0, terms=OPERATION), Granted)

    def test_who_has_seen_it_does_it_again(self, ask: Asker) -> None:
        """Because it was done, and is not there any more."""
        first = self.done(ask)
        assert ask.acquire("b-1", now=200.0, terms=OPERATION, seen=first - 1) == Done(
            RESULT, first, kept=True
        )
        assert isinstance(ask.acquire("b-2", now=200.0, terms=OPERATION, seen=first), Granted)
        assert isinstance(ask.acquire("c-1", now=201.0, terms=OPERATION), Busy)
        assert ask.look(now=201.0).kept is None

    def test_a_later_success_replaces_it(self, ask: Asker) -> None:
        first = self.done(ask)
        answer = ask.acquire("b-1", now=200.0, terms=OPERATION, seen=first)
        assert isinstance(answer, Granted)
        ask.succeed("b-1", answer.token, now=201.0, result="2", keep=10.0)
        assert ask.acquire("c-1", now=202.0, terms=OPERATION, seen=first) == Done(
            "2", answer.token, kept=True
        )
        assert isinstance(ask.acquire("c-2", now=211.0, terms=OPERATION), Granted)

    def test_what_is_done_again_and_fails_leaves_nothing(self, ask: Asker) -> None:
        first = self.done(ask)
        answer = ask.acquire("b-1", now=200.0, terms=OPERATION, seen=first)
        assert isinstance(answer, Granted)
        ask.fail("b-1", answer.token, now=201.0)
        assert isinstance(ask.acquire("c-1", now=202.0, terms=OPERATION), Granted)

    def test_who_waits_to_do_it_again_is_told_what_came_of_it(self, ask: Asker) -> None:
        first = self.done(ask)
        answer = ask.acquire("b-1", now=200.0, terms=OPERATION, seen=first)
        assert isinstance(answer, Granted)
        queued = ask.acquire("c-1", now=200.0, wait=True, terms=OPERATION, seen=first)
        assert isinstance(queued, Queued)
        ask.succeed("b-1", answer.token, now=201.0, result="2", keep=10.0)
        told = ask.acquire("c-1", now=202.0, wait=True, terms=OPERATION, seen=first)
        assert told == Done("2", answer.token)

    def test_a_break_throws_it_away(self, ask: Asker) -> None:
        token = self.done(ask)
        assert ask.break_(now=200.0, token=token + 1) == NotHeld("free")
        broken = ask.break_(now=200.0, token=token)
        assert isinstance(broken, Broken)
        assert (broken.holder.owner, broken.holder.token, broken.holder.gone) == ("ann", token, True)
        event = ask.history()[-1]
        assert (event.kind, event.token, event.by) == ("broken", token, "olga")
        assert ask.break_(now=200.0) == NotHeld("free")
        assert isinstance(ask.acquire("b-1", now=200.0, terms=OPERATION), Granted)

    def test_one_break_throws_it_away_and_opens_the_lock(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=Terms(operation=True, at_least=30.0)).token
        ask.succeed("a-1", token, now=101.0, result=RESULT, keep=60.0)
        assert isinstance(ask.break_(now=102.0, token=token), Broken)
        assert isinstance(ask.acquire("b-1", now=102.0, terms=OPERATION), Granted)

    def test_it_is_shown_until_it_is_over(self, ask: Asker) -> None:
        token = self.done(ask, keep=50.0)
        view = ask.look(now=110.0)
        assert view.kept is not None
        assert (view.state, view.holder) == ("free", None)
        assert (view.kept.owner, view.kept.token, view.kept_for) == ("ann", token, 40.0)
        view = ask.look(now=150.0)
        assert (view.kept, view.kept_for) == (None, 0.0)

    def test_sweeping_does_not_forget_it_before_its_time(self, ask: Asker) -> None:
        """Neither the key, which nobody uses, nor the result."""
        token = self.done(ask, keep=86400.0)
        for now in (1000.0, 5000.0, 86499.0):
            assert ask.sweep(now=now, idle=0.0).locks == 0
        assert ask.acquire("b-1", now=86499.999999, terms=OPERATION) == Done(RESULT, token, kept=True)
        assert ask.sweep(now=90000.0, idle=3600.0).locks == 0
        assert ask.sweep(now=90100.0, idle=3600.0).locks == 1

    def test_sweeping_does_not_forget_it_after_a_plain_lock(self, ask: Asker) -> None:
        """Which was released on whatever is the fastest way."""
        token = self.done(ask, keep=86400.0)
        plain = ask.take("b-1", now=200.0).token
        ask.release("b-1", plain, now=201.0)
        assert ask.sweep(now=50000.0, idle=0.0).locks == 0
        assert ask.acquire("c-1", now=50000.0, terms=OPERATION) == Done(RESULT, token, kept=True)

    def test_what_was_thrown_away_is_forgotten_like_any_other(self, ask: Asker) -> None:
        self.done(ask, keep=86400.0)
        ask.break_(now=200.0)
        assert ask.sweep(now=3799.0, idle=3600.0).locks == 0
        assert ask.sweep(now=3800.0, idle=3600.0).locks == 1

    def test_waiters_for_the_plain_lock_are_served_as_ever(self, ask: Asker) -> None:
        self.done(ask)
        token = ask.take("b-1", now=200.0, ttl=60.0).token
        ask.queue("c-1", now=201.0)
        told = ask.refresh("c-1", now=202.0)
        assert (told.outcome, told.expires_in) == ("waiting", 58.0)
        assert ask.release("b-1", token, now=203.0) == Released(0, next="c-1")
        assert ask.refresh("c-1", now=204.0).outcome == "handed"

    def test_a_large_result_is_kept(self, ask: Asker) -> None:
        result = '"' + "\u9501" * ((LARGEST_RESULT - 2) // 3) + '"'
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.succeed("a-1", token, now=101.0, result=result, keep=3600.0)
        assert ask.acquire("b-1", now=102.0, terms=OPERATION) == Done(result, token, kept=True)
