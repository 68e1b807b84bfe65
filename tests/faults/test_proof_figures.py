"""What the page of a run says is what its history has: counted, and resolved."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import pytest

from proof.histories.records import (
    Ask,
    Audit,
    Call,
    History,
    Run,
)
from proof.report import summary
from proof.report.example import example, verdicts
from proof.report.figures import Figures, count
from proof.report.latencies import measure
from proof.report.leases import Lease, leases, takeovers


@cache
def calm() -> History:
    return example(seconds=60, injections=24)


def row(number: int, at: int, token: int, owner: str, expires_at: int, **more: object) -> Audit:
    fields = {"attempt": owner, "what": "lock", "key": "plain:0", **more}
    return Audit(number, at, token=token, owner=owner, expires_at=expires_at, **fields)  # type: ignore[arg-type]


def ends(*rows: Audit) -> list[tuple[str, bool]]:
    return [
        (lease.owner, lease.expired) for lease in leases(History(Run("sqlite", 1, 0.0), audit=list(rows)))
    ]


def test_a_lease_that_ended_at_its_time_or_later_has_expired() -> None:
    taken_over = [row(1, 10, 10, "a", 100), row(2, 100, 100, "b", 200)]
    renewed = [row(1, 10, 10, "a", 100), row(2, 50, 10, "a", 150), row(3, 120, 120, "b", 300)]
    released = [row(1, 10, 10, "a", 100), row(2, 20, 10, "", 20), row(3, 120, 120, "b", 300)]
    assert ends(*taken_over) == [("a", True), ("b", False)]
    assert ends(*renewed) == [("a", False), ("b", False)]
    assert ends(*released) == [("a", False), ("b", False)]


def test_a_lock_that_is_shut_is_nobodys() -> None:
    assert ends(row(1, 10, 10, "a", 100), row(2, 20, 10, "a", 500, attempt="")) == [("a", False)]


def test_a_takeover_is_from_somebody_who_had_it_to_somebody_else() -> None:
    def lease(owner: str, *, expired: bool = True, claimed: bool = True, key: str = "plain:0") -> Lease:
        return Lease(key, 1, owner, 0, 10, claimed, 10, expired)

    assert len(takeovers([lease("a"), lease("b")])) == 1
    assert not takeovers([lease("a"), lease("a")])
    assert not takeovers([lease("a", expired=False), lease("b")])
    assert not takeovers([lease("a", claimed=False), lease("b")])
    assert not takeovers([lease("a"), lease("b", key="plain:1")])


def test_takeovers_of_the_checker_are_what_the_page_says() -> None:
    history = calm()
    said = verdicts(history)
    own = count(history, said).takeover_count
    assert own == len(count(history, said).takeovers) > 50
    said[0].figures["takeovers"] = 1_234.0
    assert "1,234 takeovers by expiry" in summary(history, said)


def small(calls: list[Call], **more: object) -> Figures:
    history = History(Run("sqlite", 1, began=0.0), calls=calls, **more)  # type: ignore[arg-type]
    return count(history, [])


def call(kind: str, owner: str, outcome: str, key: str = "plain:0", **more: object) -> Call:
    fields = {"called": 1.0, "returned": 2.0, **more}
    return Call("sync-1.1", 1, kind, key, owner, outcome=outcome, **fields)  # type: ignore[arg-type]


def test_unknown_calls_are_resolved_by_the_tables_and_the_resources() -> None:
    rows = [
        row(1, 10, 10, "applied", 100),
        row(2, 20, 10, "", 20),  # given back before its time
        row(3, 30, 30, "expired", 100),
        row(4, 150, 150, "next", 300),
    ]
    unknown = [
        call("acquire", "applied", "unknown", returned=math.inf),
        call("acquire", "never", "unknown"),
        call("release", "applied", "unknown"),
        call("release", "expired", "unknown"),
        call("update", "x", "unknown", key="fenced:0", value="there"),
        call("update", "x", "unknown", key="fenced:0", value="not there"),
        call("downgrade", "x", "unknown"),
    ]
    resolved = small(unknown, audit=rows, resources={"fenced:0": ["there"]}).resolved
    counted = {kind: (each.applied, each.not_applied, each.open) for kind, each in resolved.items()}
    assert counted == {
        "acquire": (1, 1, 0),
        "release": (1, 1, 0),
        "update": (1, 1, 0),
        "downgrade": (0, 0, 1),
    }


def test_a_grant_that_was_answered_resolves_no_other() -> None:
    """One hold of an owner, and two calls that could have made it: the one that was told so has."""
    calls = [call("acquire", "a", "ok"), call("reenter", "a", "unknown")]
    once = small(calls, audit=[row(1, 10, 10, "a", 100)]).resolved["reenter"]
    assert (once.applied, once.not_applied) == (0, 1)
    again = row(2, 20, 10, "a", 120, what="hold", attempt="a-2")
    twice = small(calls, audit=[row(1, 10, 10, "a", 100), again]).resolved["reenter"]
    assert (twice.applied, twice.not_applied) == (1, 0)
    unsure = [call("acquire", "a", "unknown"), call("reenter", "a", "unknown")]
    resolved = small(unsure, audit=[row(1, 10, 10, "a", 100)]).resolved
    assert (resolved["acquire"].applied, resolved["reenter"].applied) == (1, 0)


def test_only_acknowledged_updates_can_be_lost() -> None:
    calls = [
        call("update", "a", "ok", key="bare:0", value="1"),
        call("update", "a", "ok", key="bare:0", value="2"),
        call("update", "a", "unknown", key="bare:0", value="3"),
        call("update", "a", "refused", key="fenced:0", value="4"),
        call("update", "a", "ok", key="raised:0", value="5"),
    ]
    figures = small(calls, resources={"bare:0": ["2"], "raised:0": ["5"]})
    lost = {each.kind: (each.acknowledged, each.refused, each.lost) for each in figures.updates}
    assert lost == {"fenced": (0, 1, 0), "raised": (1, 0, 0), "bare": (2, 0, 1)}
    assert figures.trouble == ["nothing was checked"]  # the control may lose


def test_refusals_by_the_guard_are_told_from_those_by_our_own_clock() -> None:
    calls = [
        call("update", "a", "refused", key="fenced:0", value="1", error="LeaseLost: by our own clock"),
        call("update", "a", "refused", key="fenced:0", value="2", error="FencedOff: by the store"),
        call("update", "a", "refused", key="raised:0", value="3", error="FencedOff: by the resource"),
    ]
    figures = small(calls)
    assert [(each.kind, each.refused, each.fenced_off) for each in figures.updates] == [
        ("fenced", 2, 1),
        ("raised", 1, 1),
        ("bare", 0, 0),
    ]


@pytest.mark.parametrize(
    ("asleep", "planned"),
    [({"old": 0.9}, 1), ({"new": 0.9}, 0), ({"gone": 0.9}, 0), ({}, 0)],
    ids=["who slept on purpose", "who was taken over", "who was done before", "a fault"],
)
def test_who_takes_an_update_away_has_slept_on_purpose_or_by_a_fault(
    asleep: dict[str, float], planned: int
) -> None:
    times = {"gone": (0.0, 0.9), "old": (1.0, 4.0), "new": (2.0, 2.1)}
    calls = [
        call(
            "update",
            name,
            "ok",
            key="bare:0",
            called=called,
            returned=returned,
            token=token,
            value=name,
            wait=asleep.get(name, 0.0),
        )
        for token, (name, (called, returned)) in enumerate(times.items(), 1)
    ]
    bare = small(calls, resources={"bare:0": ["gone", "old"]}).updates[-1]
    assert (bare.lost, bare.planned, bare.by_fault) == (1, planned, 1 - planned)


def test_who_was_queued_has_waited() -> None:
    asks = [Ask("sync-1", 1, "Acquire", "plain:0", "x", "b", 1.0, 1.1, "ok", "Queued")]
    calls = [call("acquire", "a", "ok"), call("acquire", "b", "ok"), call("acquire", "c", "refused")]
    assert {each.name: each.count for each in small(calls, asks=asks).latencies} == {
        "granted at once": 1,
        "granted after a wait": 1,
    }


def test_latencies_are_those_of_the_middle_and_of_99_in_100() -> None:
    measured = measure("x", [n / 1000 for n in range(1, 101)])
    assert (measured.median, measured.p99, measured.longest) == (0.05, 0.099, 0.1)


def test_columns_have_every_call_once() -> None:
    history = calm()
    columns = count(history, verdicts(history)).columns
    outcomes = Counter(call.outcome for call in history.calls)
    assert outcomes == {
        "ok": sum(columns.ok),
        "refused": sum(columns.refused),
        "unknown": sum(columns.unknown),
    }
