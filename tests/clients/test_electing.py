# ruff: noqa: ASYNC110
"""Elections: one leader at a time, who is told when it is not any more, and another one right after it."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidKey, LeaseLost, NotHeld, SettingsError, StoreUnavailable
from holdfast.client import elections
from holdfast.core.backoff import Backoff
from holdfast.core.requests import Acquire, Renew
from tests.clients.support import PATIENCE, Actor, Spy, Stage, eventually, is_reachable


class Diary:
    """What has happened, in its order, and a callback for it."""

    def __init__(self) -> None:
        self._entries: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def __call__(self, what: str) -> Any:
        return lambda term: self._entries.put((what, term))

    def note(self, what: str, value: Any = None) -> None:
        self._entries.put((what, value))

    def next(self, what: str) -> Any:
        found, value = self._entries.get(timeout=PATIENCE)
        assert found == what
        return value

    def is_empty(self) -> bool:
        return self._entries.empty()


@pytest.fixture
def diary() -> Diary:
    return Diary()


def elect(stage: Stage, client: Any = None, **options: Any) -> Any:
    """Begin an election; with tasks that needs a loop that runs."""
    return stage.call(lambda: (client or stage.locks).elect("scheduler", **options))


def begin_terms(stage: Stage, actor: Actor, election: Any, diary: Diary, count: int = 1) -> Future[int]:
    """Lead for some terms in a loop, each until it is over or told to go on."""

    def terms() -> int:
        served = 0
        for term in election:
            diary.note("elected", term)
            term.lost.wait(PATIENCE)
            diary.note("told", term)
            served += 1
            if served == count:
                break
        return served

    async def async_terms() -> int:
        served = 0
        async for term in election:
            async with term:
                diary.note("elected", term)
                await term.lost.wait()
                await asyncio.sleep(0.01)
            diary.note("told", term)
            served += 1
            if served == count:
                break
        return served

    return actor.start(async_terms if stage.is_async else terms)


def break_term(stage: Stage) -> None:
    stage.call(stage.client().break_lock, "scheduler", reason="stuck")


def test_whoever_waits_first_is_elected_and_the_next_when_it_resigns(stage: Stage, diary: Diary) -> None:
    first, second, others = stage.actor("first"), stage.actor("second"), Diary()
    mine, theirs = elect(stage, name="one"), elect(stage, stage.client(), name="two")
    begin_terms(stage, first, mine, diary)
    term = diary.next("elected")
    assert mine.leading
    assert mine.term is term
    assert term.key == "scheduler"
    assert 0 < term.remaining < 30
    assert "leading in" in repr(mine)
    assert "sure for" in repr(term)
    term.check()
    begin_terms(stage, second, theirs, others)
    stage.until_waiting("scheduler", 1)
    assert repr(theirs).endswith("waiting>")
    leader = stage.call(theirs.leader)
    assert leader.owner == mine.owner
    assert leader.owner.startswith("one-")
    assert leader.token == term.token
    stage.call(term.resign)
    assert others.next("elected").token > term.token
    assert not term.held
    with pytest.raises(NotHeld):
        term.check()
    stage.call(term.resign)  # once is enough
    stage.call(theirs.stop)
    eventually(lambda: stage.state("scheduler") == "free")
    assert stage.call(theirs.leader) is None


def test_a_deposed_leader_is_told_and_waits_to_be_elected_again(stage: Stage, diary: Diary) -> None:
    election = elect(stage)
    served = begin_terms(stage, stage.actor("leader"), election, diary, count=2)
    terms = []
    for _ in range(2):
        terms.append(diary.next("elected"))
        eventually(lambda: is_reachable(stage.locks))
        break_term(stage)
        diary.next("told")
    assert served.result(PATIENCE) == 2
    assert terms[0].token < terms[1].token
    with pytest.raises((LeaseLost, NotHeld)):
        terms[0].check()
    eventually(lambda: stage.state("scheduler") == "free")


def test_who_leaves_the_loop_gives_up_the_lead(stage: Stage) -> None:
    election = elect(stage)

    def once() -> int:
        for term in election:
            return term.token
        raise AssertionError

    async def async_once() -> int:
        async for term in election:
            return term.token
        raise AssertionError

    first = stage.call(async_once if stage.is_async else once)
    eventually(lambda: stage.state("scheduler") == "free")
    assert stage.call(async_once if stage.is_async else once) > first
    eventually(lambda: stage.state("scheduler") == "free")


def test_a_block_of_a_term_that_is_over_is_left_as_if_it_had_ended(stage: Stage) -> None:
    """Also by its own check; but whatever else is raised there goes on its way."""
    election = elect(stage)

    def lead() -> list[int]:
        tokens = []
        for term in election:
            with term:
                tokens.append(term.token)
                if len(tokens) == 3:
                    raise KeyError("mine")
                stage.actor("other").call(stage.client().break_lock, "scheduler", reason="stuck")
                term.lost.wait(PATIENCE)
                term.check()
        return tokens

    async def async_lead() -> list[int]:
        tokens = []
        async for term in election:
            async with term:
                tokens.append(term.token)
                if len(tokens) == 3:
                    raise KeyError("mine")
                await stage.client().break_lock("scheduler", reason="stuck")
                await asyncio.sleep(PATIENCE)
        return tokens

    with pytest.raises(KeyError, match="mine"):
        stage.call(async_lead if stage.is_async else lead)
    eventually(lambda: stage.state("scheduler") == "free")


def test_stopping_an_election_ends_its_loop(stage: Stage, diary: Diary) -> None:
    mine, theirs = elect(stage), elect(stage, stage.client())
    begin_terms(stage, stage.actor("first"), mine, diary)
    diary.next("elected")
    waiting = begin_terms(stage, stage.actor("second"), theirs, diary)
    stage.until_waiting("scheduler", 1)
    stage.call(theirs.stop)
    assert waiting.result(PATIENCE) == 0
    assert repr(theirs).endswith("stopped>")
    assert stage.waiting("scheduler") == 0
    stage.call(mine.stop)
    diary.next("told")
    eventually(lambda: stage.state("scheduler") == "free")
    assert begin_terms(stage, stage.actor("third"), mine, diary).result(PATIENCE) == 0


# With callbacks.


def test_callbacks_are_called_while_it_campaigns_by_itself(stage: Stage, diary: Diary) -> None:
    election = elect(stage, on_elected=diary("elected"), on_deposed=diary("deposed"))
    first = diary.next("elected")
    assert election.leading
    first.check()  # although the callback has returned
    eventually(lambda: is_reachable(stage.locks))
    break_term(stage)
    assert diary.next("deposed") is first
    second = diary.next("elected")
    assert second.token > first.token
    stage.call(election.stop)
    assert diary.next("deposed") is second
    assert stage.state("scheduler") == "free"
    assert not election.leading
    assert diary.is_empty()
    stage.call(election.stop)


def test_one_callback_is_enough(stage: Stage, diary: Diary) -> None:
    elected = elect(stage, on_elected=diary("elected"))
    diary.next("elected")
    stage.call(elected.stop)
    deposed = elect(stage, on_deposed=diary("deposed"))
    eventually(lambda: deposed.leading)
    stage.call(deposed.term.resign)
    diary.next("deposed")
    eventually(lambda: deposed.leading)
    stage.call(deposed.stop)
    diary.next("deposed")


def test_the_next_is_elected_as_soon_as_one_stops(stage: Stage, diary: Diary) -> None:
    mine = elect(stage, on_elected=diary("mine"))
    diary.next("mine")
    theirs = elect(stage, stage.client(), on_elected=diary("theirs"))
    stage.until_waiting("scheduler", 1)
    stage.call(mine.stop)
    diary.next("theirs")
    stage.call(theirs.stop)


def test_who_leads_when_it_is_stopped_is_told_before_the_next_is_elected(stage: Stage, diary: Diary) -> None:
    begun = threading.Event()

    def lead(term: Any) -> None:
        begun.set()
        term.lost.wait(PATIENCE)
        diary.note("ended", term.held)

    async def async_lead(term: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            diary.note("ended", term.held)

    mine = elect(stage, on_elected=async_lead if stage.is_async else lead)
    assert begun.wait(PATIENCE)
    theirs = elect(stage, stage.client(), on_elected=diary("elected"))
    stage.until_waiting("scheduler", 1)
    stage.call(mine.stop)
    assert diary.next("ended"), "it still led then"
    diary.next("elected")
    stage.call(theirs.stop)


def test_a_body_that_does_not_end_is_not_waited_for_for_ever(stage: Stage, diary: Diary) -> None:
    go = threading.Event()

    def lead(term: Any) -> None:
        diary.note("elected", term)
        go.wait(PATIENCE)

    async def async_lead(term: Any) -> None:
        diary.note("elected", term)
        while not go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    election = elect(stage, on_elected=async_lead if stage.is_async else lead)
    term = diary.next("elected")
    stage.call(election.stop, 0.05)
    assert not term.held
    assert stage.state("scheduler") == "free"
    go.set()


def test_a_callback_that_fails_gives_up_the_lead_and_campaigns_again(
    stage: Stage, diary: Diary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(elections, "RETRY", Backoff(0.01, 0.02))

    def lead(term: Any) -> None:
        diary.note("elected", term)
        raise ValueError("boom")

    async def async_lead(term: Any) -> None:
        lead(term)

    def depose(term: Any) -> None:
        diary.note("deposed", term)
        raise ValueError("bang")

    election = elect(stage, on_elected=async_lead if stage.is_async else lead, on_deposed=depose)
    for _ in range(3):
        assert diary.next("elected") is diary.next("deposed")
    stage.call(election.stop)
    said = [record.getMessage() for record in caplog.records]
    assert "on_elected of 'scheduler' failed" in said
    assert "on_deposed of 'scheduler' failed" in said


def test_a_store_that_fails_ends_no_election(
    stage: Stage, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "RETRY", Backoff(0.01, 0.02))
    client = stage.client()
    spy = Spy(client)
    failures = [ValueError("a bug"), StoreUnavailable("no route")]
    spy.fault = lambda request: failures.pop() if failures and isinstance(request, Acquire) else None
    election = elect(stage, client, on_elected=diary("elected"))
    diary.next("elected")
    assert failures == []
    stage.call(election.stop)


def test_who_cannot_renew_is_deposed_when_its_trust_ends(stage: Stage, diary: Diary) -> None:
    client = stage.client()
    spy = Spy(client)
    election = elect(stage, client, on_elected=diary("elected"), on_deposed=diary("deposed"), ttl=0.5)
    term = diary.next("elected")
    spy.fail(Renew, lambda: StoreUnavailable("no route"))
    assert diary.next("deposed") is term
    assert not term.held
    spy.heal()
    assert diary.next("elected").token > term.token
    stage.call(election.stop)


def test_closing_the_client_ends_its_elections(stage: Stage, diary: Diary) -> None:
    client = stage.client()
    elect(stage, client, on_elected=diary("elected"), on_deposed=diary("deposed"))
    term = diary.next("elected")
    stage.close(client)
    assert diary.next("deposed") is term
    assert stage.state("scheduler") == "free"


def test_an_election_may_be_stopped_by_what_it_calls(stage: Stage, diary: Diary) -> None:
    elections: list[Any] = []
    ready = threading.Event()

    def lead(term: Any) -> None:
        assert ready.wait(PATIENCE)
        diary.note("elected", term)
        elections[0].stop()

    async def async_lead(term: Any) -> None:
        while not ready.is_set():
            await asyncio.sleep(0.001)
        diary.note("elected", term)
        await elections[0].stop()

    elections.append(
        elect(stage, on_elected=async_lead if stage.is_async else lead, on_deposed=diary("deposed"))
    )
    ready.set()
    diary.next("elected")
    diary.next("deposed")
    eventually(lambda: stage.state("scheduler") == "free")


def test_a_block_stops_the_election_at_its_end(stage: Stage, diary: Diary) -> None:
    def block() -> None:
        with stage.locks.elect("scheduler", on_elected=diary("elected")):
            diary.next("elected")

    async def async_block() -> None:
        async with stage.locks.elect("scheduler", on_elected=diary("elected")) as election:
            while not election.leading:
                await asyncio.sleep(0.001)

    stage.call(async_block if stage.is_async else block)
    assert stage.state("scheduler") == "free"


def test_a_leader_may_hold_the_lock_of_its_election_for_nobody_else(stage: Stage, diary: Diary) -> None:
    """The election is an owner of its own: who runs it does not enter its lease again by chance."""
    election = elect(stage, on_elected=diary("elected"))
    diary.next("elected")
    assert stage.call(stage.locks.try_acquire, "scheduler") is None
    stage.call(election.stop)


@pytest.mark.parametrize(
    ("key", "options", "error", "says"),
    [
        ("", {}, InvalidKey, "is empty"),
        ("scheduler", {"on_elected": 7}, SettingsError, "on_elected is 7; it must be a function"),
        ("scheduler", {"on_deposed": "x"}, SettingsError, "on_deposed is 'x'; it must be a function"),
        ("scheduler", {"ttl": 0}, SettingsError, "ttl is 0"),
        ("scheduler", {"name": ""}, SettingsError, "name is ''"),
    ],
)
def test_what_cannot_be_elected_says_why(
    stage: Stage, key: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        stage.call(lambda: stage.locks.elect(key, **options))


def test_an_election_with_callbacks_is_not_iterated_over(stage: Stage, diary: Diary) -> None:
    election = elect(stage, on_elected=diary("elected"))
    with pytest.raises(SettingsError, match="campaigns by itself"):
        begin_terms(stage, stage.actor("loop"), election, diary).result(PATIENCE)
    stage.call(election.stop)


def test_a_process_that_ends_hands_the_lead_over_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    code = f"""
        import sys
        from holdfast import Holdfast
        def lead(term):
            print("elected", flush=True)
        election = Holdfast({url!r}).elect("scheduler", on_elected=lead, ttl=600)
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "elected\n"
    with Holdfast(url) as locks:
        election = locks.elect("scheduler")
        assert election.leader() is not None
        process.communicate("", timeout=PATIENCE)
        for term in election:
            assert term.held
            break
