"""Offering work: once for each key, whoever offers it and however often."""

from __future__ import annotations

import json

from holdfast.core.cluster import LARGEST_DATA, MOST_OFFERED, Ending, Offer, Offered, OfferedWork, WorkView
from holdfast.core.data import replace
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore
from holdfast.testing.conformance.names import KEYS

ENDED: dict[str, Ending] = {"job:1": "completed", "job:2": "failed"}
NEW = WorkView("job:1", "offered", "null", "", 0, 0, "", 0, 100.0, None, 100.0)


class Offers:
    """What is known stays as it is, unless it has ended and is offered again."""

    def test_work_that_is_not_known_is_offered(self, ask: Asker) -> None:
        assert ask.offer("job:1", now=100.0) == Offered(("offered",), (True,))
        assert ask.find_work("job:1", now=100.0) == NEW
        assert ask.find_work("job:2", now=100.0) is None

    def test_it_is_kept_as_it_was_offered(self, ask: Asker) -> None:
        data = json.dumps({"name": "Zoë", "lock": "🔒", "quote": "'\"`\\"}, ensure_ascii=False)
        ask.offer("job:1", now=100.0, data=data, max_tries=3, delay=5.0)
        work = ask.work("job:1", now=100.0)
        assert work == replace(NEW, data=data, max_tries=3, due_at=105.0)
        assert work.value["lock"] == "🔒"
        assert work.result is None

    def test_an_instant_comes_before_a_delay(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0, delay=5.0, at=250.125)
        ask.offer("job:2", now=100.0, at=7.5)
        assert [work.due_at for work in ask.works(now=100.0).works] == [250.125, 7.5]

    def test_to_offer_it_again_changes_nothing(self, ask: Asker) -> None:
        """P6: an answer was lost, or somebody else has offered it."""
        ask.offer("job:1", now=100.0, data='"first"')
        again = ask.offer("job:1", now=101.0, data='"second"', max_tries=9, delay=9.0)
        assert again == Offered(("offered",), (False,))
        assert ask.work("job:1", now=101.0) == replace(NEW, data='"first"')

    def test_all_are_answered_in_their_order(self, ask: Asker) -> None:
        ask.join(now=99.0)
        ask.offer("job:b", now=99.0)
        ask.claim_one(now=99.0, ttl=60.0)
        ask.finish(ask.begin("job:d", "a-1", now=99.0), now=99.0)
        ask.finish(ask.begin("job:e", "a-1", now=99.0), "failed", now=99.0)
        ask.offer("job:c", now=99.0)
        assert ask.offer("job:e", "job:z", "job:b", "job:a", "job:d", "job:c", now=100.0) == Offered(
            ("failed", "offered", "assigned", "offered", "completed", "offered"),
            (False, True, False, True, False, False),
        )

    def test_a_key_that_is_there_twice_is_offered_once(self, ask: Asker) -> None:
        works = (OfferedWork("job:1", '"first"'), OfferedWork("job:2"), OfferedWork("job:1", '"second"'))
        expected = Offered(("offered",) * 3, (True, True, False))
        assert ask.store.execute(Offer(works, now=100.0)) == expected
        assert ask.work("job:1", now=100.0).data == '"first"'
        ask.finish(ask.begin("job:1", "a-1", now=101.0), now=101.0)
        ask.finish(ask.begin("job:2", "a-1", now=101.0), now=101.0)
        assert ask.store.execute(Offer(works, again=True, now=102.0)) == expected
        assert ask.work("job:1", now=102.0).data == '"first"'

    def test_each_has_terms_of_its_own(self, ask: Asker) -> None:
        works = (OfferedWork("job:1", "1", 1, 0.0), OfferedWork("b", "2", 2, 2.0), OfferedWork("c", at=3.0))
        ask.store.execute(Offer(works, now=100.0))
        seen = [(work.key, work.data, work.max_tries, work.due_at) for work in ask.works(now=100.0).works]
        assert seen == [("b", "2", 2, 102.0), ("c", "null", 0, 3.0), ("job:1", "1", 1, 100.0)]

    def test_nothing_may_be_offered(self, ask: Asker) -> None:
        assert ask.offer(now=100.0) == Offered((), ())

    def test_what_is_assigned_stays_so_even_if_it_is_offered_again(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0, data='"first"')
        given = ask.begin("job:1", "a-1", now=101.0)
        before = ask.work("job:1", now=102.0)
        assert ask.offer("job:1", now=102.0, data='"second"', again=True) == Offered(("assigned",), (False,))
        assert ask.work("job:1", now=102.0) == before
        assert ask.renew("a-1", given.token, now=102.0, key="job:1").outcome == "renewed"

    def test_what_is_offered_is_not_offered_again(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0, delay=50.0)
        assert ask.offer("job:1", now=101.0, again=True) == Offered(("offered",), (False,))
        assert ask.work("job:1", now=101.0).due_at == 150.0

    def test_what_has_ended_stays_so_unless_it_is_offered_again(self, ask: Asker) -> None:
        for key, ending in ENDED.items():
            ask.offer(key, now=100.0, max_tries=5)
            given = ask.begin(key, "a-1", now=100.0)
            ask.finish(given, ending, now=101.0, text='"so it went"')
            ended = ask.work(key, now=102.0)
            assert ask.offer(key, now=102.0) == Offered((ended.state,), (False,))
            assert ask.work(key, now=102.0) == ended
            assert ask.offer(key, now=103.0, data="7", again=True) == Offered(("offered",), (True,))
            assert ask.work(key, now=103.0) == replace(NEW, key=key, data="7", offered_at=103.0, due_at=103.0)
            assert ask.begin(key, "b-1", now=104.0).token > given.token

    def test_offering_takes_no_lock(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0)
        assert ask.inspect(now=100.0, key="job:1") is None
        assert ask.take("a-1", now=100.0, key="job:1").token > 0

    def test_work_may_be_offered_for_a_key_that_is_locked(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, key="job:1")
        assert ask.offer("job:1", now=100.0).states == ("offered",)

    def test_all_clients_see_the_same_work(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.offer("job:1", now=100.0)
        assert other.offer("job:1", now=100.0).new == (False,)
        assert other.find_work("job:1", now=100.0) == NEW

    def test_as_many_as_can_be_offered_at_once(self, ask: Asker) -> None:
        keys = [f"job:{number:04}" for number in range(MOST_OFFERED)]
        assert ask.offer(*keys, now=100.0).new == (True,) * MOST_OFFERED
        assert ask.offer(*reversed(keys[1:]), "job:x", now=101.0).new == (
            *(False,) * (MOST_OFFERED - 1),
            True,
        )
        page = ask.works(now=101.0, limit=MOST_OFFERED)
        assert ([work.key for work in page.works], page.after) == (keys, keys[-1])

    def test_data_as_large_as_can_be(self, ask: Asker) -> None:
        """In bytes: of three-byte characters there are a third as many."""
        for key, data in (
            ("job:1", json.dumps("x" * (LARGEST_DATA - 2))),
            ("job:2", json.dumps("锁" * ((LARGEST_DATA - 2) // 3), ensure_ascii=False)),
            ("job:3", json.dumps("🔒" * ((LARGEST_DATA - 2) // 4), ensure_ascii=False)),
        ):
            assert LARGEST_DATA - 4 < len(data.encode()) <= LARGEST_DATA
            ask.offer(key, now=100.0, data=data)
            given = ask.begin(key, "a-1", now=101.0)
            assert given.data == data
            ask.finish(given, now=102.0, text=data, data=data)
            work = ask.work(key, now=102.0)
            assert (work.data, work.text) == (data, data)

    def test_every_key_is_other_work(self, ask: Asker) -> None:
        """Hostile names, as for locks."""
        ask.store.execute(Offer(tuple(OfferedWork(key, f'"{n}"') for n, key in enumerate(KEYS)), now=100.0))
        for number, key in enumerate(KEYS):
            assert ask.work(key, now=101.0).data == f'"{number}"'
            given = ask.begin(key, f"a-{number}", now=101.0)
            assert (given.key, given.data) == (key, f'"{number}"')
        assert [work.key for work in ask.works(now=101.0, limit=1000).works] == sorted(KEYS)
        for key in KEYS:
            view = ask.look(now=101.0, key=key)
            assert view.holder is not None
            assert view.key == key

    def test_the_store_has_the_time_of_an_offer(self, ask: Asker) -> None:
        ask.offer("job:1", now=None, delay=1000.0)
        work = ask.work("job:1", now=None)
        assert work.offered_at > 1_500_000_000
        assert round(work.due_at - work.offered_at, 6) == 1000.0
