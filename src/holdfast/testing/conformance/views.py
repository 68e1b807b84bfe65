"""Inspect and List: see everything, change nothing."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.requests import Holder, LockView, NotHeld
from holdfast.testing.conformance.asker import CLIENT, OPERATION, SHARED, Asker, permits

LAST = "\U0010ffff"


class Views:
    """One lock as it stands, or a page of many in the order of their keys."""

    def test_a_key_that_was_never_used_is_not_there(self, ask: Asker) -> None:
        assert ask.inspect(now=100.0) is None
        assert ask.page(now=100.0).locks == ()

    def test_a_held_lock(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        holder = Holder("ann", CLIENT.host, CLIENT.pid, token, held_for=4.0)
        assert ask.look(now=104.0) == LockView(
            key="nightly",
            state="held",
            token=token,
            holder=holder,
            expires_in=6.0,
            holds=1,
            waiting=0,
            holders=(holder,),
        )

    def test_an_expired_lock_is_shown_with_whom_it_was_lost_by(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        view = ask.look(now=110.0)
        assert (view.state, view.token, view.expires_in) == ("expired", token, 0.0)
        assert view.holder is not None
        assert view.holder.owner == "ann"

    def test_a_free_lock(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.look(now=102.0) == LockView("nightly", "free", token, None, 0.0, holds=0, waiting=0)

    def test_a_lock_tells_what_kind_it_is_wherever_it_is_shown(self, ask: Asker) -> None:
        """Also on a page of many, each with its own holds."""
        ask.take("a-1", now=100.0, key="plain")
        ask.take("b-1", now=100.0, key="pull", terms=OPERATION)
        for attempt, take in (("c-1", 2), ("c-2", 1)):
            ask.take(attempt, now=100.0, key="gpu", terms=permits(4, take))
        for attempt in ("d-1", "d-2"):
            ask.take(attempt, now=100.0, key="read", terms=SHARED)
        page = {view.key: view for view in ask.page(now=101.0).locks}
        shown = {
            key: (view.mode, view.operation, view.taken, view.permits, view.holds)
            for key, view in page.items()
        }
        assert shown == {
            "plain": ("exclusive", False, 0, 0, 1),
            "pull": ("exclusive", True, 0, 0, 1),
            "gpu": ("permits", False, 3, 4, 2),
            "read": ("shared", False, 0, 0, 2),
        }
        for key, view in page.items():
            one = ask.look(now=101.0, key=key)
            assert replace(one, holders=()) == view
            assert one.holders[0] == view.holder

    def test_looking_changes_nothing(self, ask: Asker) -> None:
        """An expired lease with somebody waiting stays so until a request settles it."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        for _ in range(2):
            assert ask.look(now=111.0).state == "expired"
            assert ask.look(now=111.0).waiting == 1
            assert [view.state for view in ask.page(now=111.0).locks] == ["expired"]
            assert ask.history() == ()
        assert ask.signals() == []
        assert ask.renew("a-1", token, now=109.0).outcome == "renewed"

    def test_looking_at_the_past_and_at_the_future_changes_nothing(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.look(now=50.0)
        ask.look(now=5000.0)
        assert ask.release("a-1", token, now=101.0) != NotHeld("expired")

    def test_the_first_hundred_waiters_are_shown_and_all_are_counted(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        for number in range(103):
            ask.queue(f"w-{number}", now=101.0)
        view = ask.look(now=101.0)
        assert view.waiting == 103
        assert [waiter.owner for waiter in view.waiters] == [f"w-{number}" for number in range(100)]

    def test_a_list_shows_each_lock_as_inspecting_it_does_but_for_who_is_there(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, key="a", owner="ann")
        ask.take("a-2", now=100.0, key="a", owner="ann")
        ask.take("b-1", now=100.0, key="b", ttl=1.0)
        token = ask.take("c-1", now=100.0, key="c").token
        ask.release("c-1", token, now=101.0, key="c")
        listed = ask.page(now=102.0).locks
        assert listed == tuple(replace(ask.look(now=102.0, key=key), holders=()) for key in "abc")
        ask.queue("d-1", now=102.0, key="a")
        (first, *_) = ask.page(now=102.0).locks
        assert (first.waiting, first.waiters) == (1, ())

    def test_a_list_is_in_the_order_of_the_code_points(self, ask: Asker) -> None:
        keys = ["B", "a", "b", "é", "\uffee", "\U0001f512"]
        for key in reversed(keys):
            ask.take("a-1", now=100.0, key=key)
        assert self._keys(ask) == keys

    def test_pages_go_on_where_the_last_one_ended(self, ask: Asker) -> None:
        keys = [f"k{number}" for number in range(7)]
        for key in keys:
            ask.take("a-1", now=100.0, key=key)
        seen: list[list[str]] = []
        after: str | None = ""
        while after is not None:
            page = ask.page(now=101.0, after=after, limit=3)
            seen.append([view.key for view in page.locks])
            after = page.after
        assert seen == [keys[:3], keys[3:6], keys[6:]]

    def test_a_page_that_is_just_full_is_the_last_one(self, ask: Asker) -> None:
        for key in "abc":
            ask.take("a-1", now=100.0, key=key)
        assert ask.page(now=100.0, limit=3).after is None
        assert ask.page(now=100.0, limit=2).after == "b"

    def test_pages_of_a_filter_go_on_too(self, ask: Asker) -> None:
        for number in range(6):
            ask.take("a-1", now=100.0, key=f"k{number}", owner="ann" if number % 2 else "bob")
        page = ask.page(now=100.0, owner="ann", limit=2)
        assert ([view.key for view in page.locks], page.after) == (["k1", "k3"], "k3")
        rest = ask.page(now=100.0, owner="ann", limit=2, after="k3")
        assert ([view.key for view in rest.locks], rest.after) == (["k5"], None)

    def test_by_prefix(self, ask: Asker) -> None:
        for key in ("a", "ab", "ab%", "ab_c", "abx", "ac", "Ab", "b"):
            ask.take("a-1", now=100.0, key=key)
        assert self._keys(ask, prefix="ab") == ["ab", "ab%", "ab_c", "abx"]
        assert self._keys(ask, prefix="ab_") == ["ab_c"]
        assert self._keys(ask, prefix="ab%") == ["ab%"]
        assert self._keys(ask, prefix="zz") == []

    def test_by_a_prefix_that_ends_with_the_last_code_point(self, ask: Asker) -> None:
        """There is no next character, so the range has to end further left, or nowhere."""
        for key in ("a", f"a{LAST}", f"a{LAST}{LAST}", f"a{LAST}b", "b", LAST, f"{LAST}x"):
            ask.take("a-1", now=100.0, key=key)
        assert self._keys(ask, prefix=f"a{LAST}") == [f"a{LAST}", f"a{LAST}b", f"a{LAST}{LAST}"]
        assert self._keys(ask, prefix=LAST) == [LAST, f"{LAST}x"]

    def test_by_a_prefix_before_the_surrogates(self, ask: Asker) -> None:
        """The next code point would have no UTF-8 form."""
        for key in ("\ud7ff", "\ud7ffx", "\ue000"):
            ask.take("a-1", now=100.0, key=key)
        assert self._keys(ask, prefix="\ud7ff") == ["\ud7ff", "\ud7ffx"]

    def test_by_type(self, ask: Asker) -> None:
        """R5: the type is everything before the first colon, and all of it."""
        for key in ("node:1:a", "node:2", "nodes:1", "node", "workflow:1", "n%3Ao:1"):
            ask.take("a-1", now=100.0, key=key)
        assert self._keys(ask, type="node") == ["node:1:a", "node:2"]
        assert self._keys(ask, type="n:o") == ["n%3Ao:1"]
        assert self._keys(ask, type="node", prefix="node:1") == ["node:1:a"]
        assert self._keys(ask, type="node", prefix="w") == []

    def test_by_owner(self, ask: Asker) -> None:
        """R5: the owner of a lock that is free, or was handed on, is not its owner."""
        token = ask.take("a-1", now=100.0, key="k1", owner="ann").token
        ask.take("a-2", now=100.0, key="k2", owner="ann")
        ask.take("a-3", now=100.0, key="k3", owner="ann", ttl=1.0)
        ask.take("b-1", now=100.0, key="k4", owner="Ann")
        ask.release("a-1", token, now=101.0, key="k1")
        assert self._keys(ask, owner="ann", now=105.0) == ["k2", "k3"]
        assert self._keys(ask, owner="nobody", now=105.0) == []

    def test_by_state(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, key="free").token
        ask.release("a-1", token, now=101.0, key="free")
        ask.take("a-1", now=100.0, key="held", owner="ann")
        ask.take("a-1", now=100.0, key="over", owner="ann", ttl=1.0)
        assert self._keys(ask, state="free") == ["free"]
        assert self._keys(ask, state="held") == ["held"]
        assert self._keys(ask, state="expired") == ["over"]
        assert self._keys(ask, state="held", owner="ann") == ["held"]
        assert self._keys(ask, state="expired", owner="ann") == ["over"]
        assert self._keys(ask, state="free", owner="ann") == []

    def test_a_state_is_that_of_the_time_given(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        assert self._keys(ask, state="held", now=109.999999) == ["nightly"]
        assert self._keys(ask, state="expired", now=110.0) == ["nightly"]

    @staticmethod
    def _keys(ask: Asker, now: float = 105.0, **filters: str) -> list[str]:
        return [view.key for view in ask.page(now=now, **filters).locks]  # type: ignore[arg-type]
