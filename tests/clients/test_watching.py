"""Watching: what happens to locks, as it happens, with nothing missed and nothing twice."""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast import Event, InvalidKey, SettingsError
from holdfast.core.plans import WATCH_ANYWAY, WATCH_EVERY
from holdfast.core.requests import Watch
from holdfast.errors import Closed, StoreUnavailable
from tests.clients.support import PATIENCE, Spy, Stage, eventually

QUIET = 0.6  # seconds without an event, after which all are here


def collect(stage: Stage, pattern: str, **options: Any) -> Any:
    """Return what watches until it is quiet, or until it has seen *most* events."""
    most = options.pop("most", None)
    options.setdefault("timeout", QUIET)

    def threaded() -> list[Event]:
        seen: list[Event] = []
        for event in stage.locks.watch(pattern, **options):
            seen.append(event)
            if len(seen) == most:
                break
        return seen

    async def tasked() -> list[Event]:
        seen: list[Event] = []
        async for event in stage.locks.watch(pattern, **options):
            seen.append(event)
            if len(seen) == most:
                break
        return seen

    return tasked if stage.is_async else threaded


def operate(stage: Stage, name: str, resource: str, *, fails: bool = False) -> None:
    def threaded() -> None:
        with stage.locks.operation(name, resource) as it:
            if fails:
                it.fail("no")

    async def tasked() -> None:
        async with stage.locks.operation(name, resource) as it:
            if fails:
                it.fail("no")

    stage.call(tasked if stage.is_async else threaded)


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.key, event.kind) for event in events]


def test_events_come_as_they_happen(stage: Stage) -> None:
    watching = stage.actor("watcher").start(collect(stage, "pull:*", after=0, most=4, timeout=PATIENCE))
    operate(stage, "pull", "a")
    operate(stage, "delete", "a")
    operate(stage, "pull", "b", fails=True)
    events = watching.result(PATIENCE)
    assert kinds(events) == [
        ("pull:a", "granted"),
        ("pull:a", "completed"),
        ("pull:b", "granted"),
        ("pull:b", "failed"),
    ]
    assert [event.id for event in events] == sorted({event.id for event in events})


def test_from_any_event_it_goes_on_without_gap_or_duplicate(stage: Stage) -> None:
    for n in range(3):
        operate(stage, "pull", f"{n % 2}")
    everything = stage.call(collect(stage, "*", after=0))
    assert len(everything) == 6
    for place, event in enumerate(everything):
        assert stage.call(collect(stage, "*", after=event.id)) == everything[place + 1 :]


def test_who_says_nothing_sees_what_happens_from_now_on(stage: Stage) -> None:
    operate(stage, "pull", "a")
    assert stage.call(collect(stage, "*")) == []


def test_who_does_not_wait_sees_all_there_is_behind_much_that_is_not_wanted(stage: Stage) -> None:
    """A store looks at a thousand events at once; that none of them is wanted is no end."""
    everything = stage.client(history="all")

    def threaded() -> None:
        for n in range(510):
            everything.acquire(f"noise:{n % 3}").release()

    async def tasked() -> None:
        for n in range(510):
            await (await everything.acquire(f"noise:{n % 3}")).release()

    stage.call(tasked if stage.is_async else threaded)
    operate(stage, "pull", "a")
    seen = stage.call(collect(stage, "pull:*", after=0, timeout=0))
    assert kinds(seen) == [("pull:a", "granted"), ("pull:a", "completed")]


def test_one_key_is_not_another_that_begins_so(stage: Stage) -> None:
    operate(stage, "pull", "a")
    operate(stage, "pull", "ab")
    assert {event.key for event in stage.call(collect(stage, "pull:a", after=0))} == {"pull:a"}
    assert {event.key for event in stage.call(collect(stage, "pull:a*", after=0))} == {"pull:a", "pull:ab"}


def test_plain_locks_are_seen_as_far_as_the_history_goes(stage: Stage) -> None:
    everything = stage.client(history="all")
    lease = stage.call(everything.acquire, "nightly")
    stage.call(lease.release)
    stage.call(stage.call(stage.locks.acquire, "silent").release)
    assert kinds(stage.call(collect(stage, "*", after=0))) == [
        ("nightly", "granted"),
        ("nightly", "released"),
    ]


def test_a_store_that_fails_for_a_while_costs_no_event(stage: Stage) -> None:
    spy = Spy(stage.locks)
    failures = iter([StoreUnavailable("down"), StoreUnavailable("down")])
    spy.fault = lambda request: next(failures, None) if isinstance(request, Watch) else None
    operate(stage, "pull", "a")
    assert len(stage.call(collect(stage, "*", after=0, timeout=5.0, most=2))) == 2


def test_who_watches_is_told_and_need_not_look(stage: Stage) -> None:
    """Not through whom it writes: through another client. A store that cannot tell is asked often instead."""
    spy = Spy(stage.locks)
    other = stage.client(history="all")
    tells = stage.locks._engine.store.traits.tells_watchers
    watching = stage.actor("watcher").start(collect(stage, "*", most=1, timeout=PATIENCE))
    eventually(lambda: any(isinstance(each, Watch) and each.address for each in spy.seen), "a look")
    time.sleep(2 * WATCH_EVERY)
    looks = spy.count(Watch)
    time.sleep(4 * WATCH_EVERY)
    assert spy.count(Watch) - looks <= 1 if tells else spy.count(Watch) - looks >= 2
    began = time.monotonic()
    stage.call(other.acquire, "nightly")
    assert kinds(watching.result(PATIENCE)) == [("nightly", "granted")]
    assert time.monotonic() - began < (WATCH_ANYWAY / 2 if tells else PATIENCE)
    assert not stage.locks._engine.mailboxes


def test_a_closed_client_watches_no_more(stage: Stage) -> None:
    spy = Spy(stage.locks)
    watching = stage.actor("watcher").start(collect(stage, "*", timeout=PATIENCE))
    eventually(lambda: any(isinstance(each, Watch) and each.address for each in spy.seen), "a look")
    stage.call(stage.locks.close)
    with pytest.raises(Closed):
        watching.result(PATIENCE)


def test_what_cannot_be_watched_is_refused(stage: Stage) -> None:
    for pattern in ("", "a\nb", 7):
        with pytest.raises(InvalidKey):
            stage.call(collect(stage, pattern))  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="after is -1"):
        stage.call(collect(stage, "*", after=-1))
