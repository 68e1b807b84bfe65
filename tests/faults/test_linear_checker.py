"""The checker of linearizability, checked: the model of a lock, and how a history is read.

It has to accept what the reference store does, whatever is lost on the way, and to find every violation that
is planted: in a short story, in a long history, or in a store. The search is tested by itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from holdfast.stores.memory.store import MemoryStore
from proof.checkers.linear import check
from proof.histories.records import Ask, Audit, Call, History, Injected, Run, Verdict
from tests.faults.linear_flaws import FLAWED
from tests.faults.linear_simulation import CLAIM, KEY, PATIENCE, Simulation

# What is right is accepted.


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
def test_what_the_reference_store_does_is_explained_whatever_is_lost(loss: float) -> None:
    for seed in range(60):
        history = Simulation(seed, clients=2 + seed % 6, seconds=4.0, loss=loss).run()
        assert found(history) == [], f"seed {seed}"


def test_a_long_history_is_cut_where_nothing_is_under_way() -> None:
    verdict = check(Simulation(4, clients=4, seconds=60.0, loss=0.01).run())
    assert verdict.undecided == 0
    assert verdict.checked["linearizable"] > 1000
    assert verdict.figures["linear_slices"] > 200


# Violations that are planted in a short story, each told in requests.


def ask(when: tuple[float, float], kind: str, attempt: str, answer: str, **more: Any) -> Ask:
    """Return a request between two instants; the owner is the attempt up to the dot."""
    fields: dict[str, Any] = {"ttl": 1.0 if kind in ("Acquire", "Renew") else 0.0, "patience": PATIENCE}
    fields |= {"holds": 1 if answer == "Granted" else 0, "outcome": "ok" if answer else "unknown"}
    if kind in ("Acquire", "Enter"):
        fields["owner"] = attempt.partition(".")[0]
    owner = fields.pop("owner", "")
    return Ask("w", 0, kind, KEY, attempt, owner, *when, **{"answer": answer, **fields, **more})


def story(*asks: Ask, **more: Any) -> History:
    return History(Run("postgres", 0, 0.0, 99.0, settings={"claim": CLAIM}), asks=list(asks), **more)


def found(history: History) -> list[str]:
    verdict: Verdict = check(history)
    assert verdict.undecided == 0
    return [violation.rule for violation in verdict.violations]


A_HAS_IT = ask((0.0, 0.1), "Acquire", "a.1", "Granted", token=10)
A_GIVES_IT = ask((0.5, 0.6), "Release", "a.1", "Released", token=10)
B_HAS_IT = ask((0.7, 0.8), "Acquire", "b.1", "Granted", token=20)
B_WAITS = ask((0.3, 0.4), "Acquire", "b.1", "Queued", wait=True)
B_ENTERS = ask((0.3, 0.65), "Enter", "b.1", "Granted", token=20, ttl=CLAIM)

RIGHT = {
    "one after the other": (A_HAS_IT, A_GIVES_IT, B_HAS_IT),
    "a release under way": (A_HAS_IT, replace(A_GIVES_IT, returned=0.9), B_HAS_IT),
    "taken over at the end": (A_HAS_IT, ask((0.9, 1.05), "Acquire", "b.1", "Granted", token=20)),
    "entered again": (
        A_HAS_IT,
        ask((0.2, 0.3), "Acquire", "a.2", "Granted", token=10, holds=2),
        ask((0.4, 0.5), "Release", "a.1", "Released", token=10, holds=1),
        ask((0.6, 0.7), "Release", "a.2", "Released", token=10),
        B_HAS_IT,
    ),
    "renewed": (
        A_HAS_IT,
        ask((0.9, 1.0), "Renew", "a.1", "renewed", token=10),
        ask((1.5, 1.6), "Acquire", "b.1", "Busy"),
    ),
    "entered by the hand-over": (
        A_HAS_IT,
        B_WAITS,
        A_GIVES_IT,
        B_ENTERS,
        ask((0.9, 1.0), "Renew", "b.1", "renewed", token=20),
        ask((1.1, 1.2), "Release", "b.1", "Released", token=20),
    ),
    "entered, and taken over at the end of the claim window": (
        A_HAS_IT,
        B_WAITS,
        A_GIVES_IT,
        B_ENTERS,
        ask((1.2, 1.3), "Acquire", "c.1", "Granted", token=30),
    ),
    "busy because somebody waits": (
        A_HAS_IT,
        ask((0.2, 0.3), "Acquire", "c.1", "Queued", wait=True),
        A_GIVES_IT,
        ask((0.7, 0.8), "Acquire", "b.1", "Busy"),
    ),
}

WRONG = {
    "two holders": (A_HAS_IT, ask((0.2, 0.3), "Acquire", "b.1", "Granted", token=20)),
    "a token that does not rise": (A_HAS_IT, A_GIVES_IT, replace(B_HAS_IT, token=9)),
    "one token for two leases": (A_HAS_IT, A_GIVES_IT, replace(B_HAS_IT, token=10)),
    "one token for two leases of one owner": (
        A_HAS_IT,
        A_GIVES_IT,
        ask((0.7, 0.8), "Acquire", "a.2", "Granted", token=10),
    ),
    "entered again with another token": (
        A_HAS_IT,
        ask((0.2, 0.3), "Acquire", "a.2", "Granted", token=11, holds=2),
    ),
    "entered again by another owner": (
        A_HAS_IT,
        ask((0.2, 0.3), "Acquire", "b.2", "Granted", token=10, holds=2),
    ),
    "entered while another has it": (A_HAS_IT, B_WAITS, replace(B_ENTERS, returned=0.4)),
    "entered under an old token": (A_HAS_IT, B_WAITS, A_GIVES_IT, replace(B_ENTERS, token=9)),
    "taken over within the claim window": (
        A_HAS_IT,
        B_WAITS,
        A_GIVES_IT,
        B_ENTERS,
        ask((0.7, 0.75), "Acquire", "c.1", "Granted", token=30),
    ),
    "claimed after the claim window": (
        A_HAS_IT,
        B_WAITS,
        A_GIVES_IT,
        B_ENTERS,
        ask((1.2, 1.3), "Renew", "b.1", "renewed", token=20),
    ),
    "a hold too many": (A_HAS_IT, replace(A_GIVES_IT, holds=1)),
    "renewed after it was lost": (
        A_HAS_IT,
        ask((1.0, 1.1), "Renew", "a.1", "lost", token=10, why="expired"),
        ask((1.2, 1.3), "Renew", "a.1", "renewed", token=10),
    ),
    "renewed after its end": (A_HAS_IT, ask((1.2, 1.3), "Renew", "a.1", "renewed", token=10)),
    "renewed after somebody took over": (
        A_HAS_IT,
        ask((1.0, 1.1), "Acquire", "b.1", "Granted", token=20),
        ask((1.05, 1.2), "Renew", "a.1", "renewed", token=10),
        ask((1.3, 1.4), "Renew", "b.1", "lost", token=20, why="expired"),
    ),
    "released by somebody else": (
        A_HAS_IT,
        ask((0.2, 0.3), "Release", "b.1", "NotHeld", token=5, why="unknown"),
        ask((0.4, 0.5), "Acquire", "b.2", "Granted", token=20),
    ),
    "released what was not its own": (A_HAS_IT, ask((0.2, 0.3), "Release", "a.9", "Released", token=10)),
    "granted before the end": (A_HAS_IT, ask((0.8, 0.9), "Acquire", "b.1", "Granted", token=20)),
    "lost before its end": (A_HAS_IT, ask((0.5, 0.6), "Renew", "a.1", "lost", token=10, why="expired")),
    "told that it has released what it has not": (
        A_HAS_IT,
        ask((1.0, 1.2), "Release", "a.1", "NotHeld", token=10, why="already"),
    ),
    "a stale answer": (A_HAS_IT, A_GIVES_IT, ask((0.7, 0.8), "Acquire", "b.1", "Busy")),
    "still busy with a lease that is over": (A_HAS_IT, ask((1.2, 1.3), "Acquire", "b.1", "Busy")),
    "told to wait for itself": (
        A_HAS_IT,
        ask((0.1, 0.2), "Acquire", "c.1", "Queued", wait=True),
        ask((0.2, 0.3), "Acquire", "a.2", "Queued", wait=True),
    ),
    "handed to two": (A_HAS_IT, ask((0.2, 0.3), "Refresh", "b.1", "handed")),
    "granted after its release": (
        A_HAS_IT,
        A_GIVES_IT,
        ask((0.7, 0.8), "Acquire", "a.1", "Granted", token=30),
    ),
    "granted after its withdrawal": (
        ask((0.0, 0.1), "Withdraw", "a.1", "Withdrawn"),
        ask((0.2, 0.3), "Acquire", "a.1", "Granted", token=10),
    ),
    "broken and held all the same": (
        A_HAS_IT,
        ask((0.2, 0.3), "Break", "", "Broken", token=10),
        ask((0.4, 0.5), "Renew", "a.1", "renewed", token=10),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_where_nothing_is(name: str) -> None:
    assert found(story(*RIGHT[name])) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_violation_is_found(name: str) -> None:
    assert found(story(*WRONG[name])) == ["linearizable"]


@pytest.mark.parametrize("seed", range(8))
def test_a_violation_is_found_in_the_middle_of_a_long_history(seed: int) -> None:
    history = Simulation(seed, clients=5, seconds=20.0, loss=0.05).run()
    grants = [n for n, a in enumerate(history.asks) if a.answer == "Granted" and a.holds == 1]
    before, after = grants[len(grants) // 2 : len(grants) // 2 + 2]
    assert found(history) == []
    history.asks[after] = replace(history.asks[after], token=history.asks[before].token - 1)
    assert "linearizable" in found(history)


@pytest.mark.parametrize("flawed", FLAWED, ids=lambda flawed: flawed.__name__)
def test_a_store_with_a_flaw_is_found_out(flawed: type[MemoryStore]) -> None:
    """By its answers, though some of them are lost: not in every history, but in enough of them."""
    found_out = 0
    for seed in range(20):
        history = Simulation(seed, clients=5, seconds=8.0, loss=0.05, store=flawed).run()
        found_out += bool(check(history).violations)
    assert found_out >= 5


def test_the_text_shows_the_request_and_what_was_around_it() -> None:
    (violation,) = check(story(*WRONG["two holders"])).violations
    lines = violation.text.splitlines()
    assert violation.key == KEY
    assert [line for line in lines if line.startswith(">")] == [
        line for line in lines if "Acquire b.1" in line
    ]
    assert any("held by a, token 10 (a.1 until 0.997 to 1.103)" in line for line in lines)


# What is unknown is resolved.


def row(number: int, what: str, attempt: str = "", token: int = 0, **more: Any) -> Audit:
    return Audit(number, 0, what, KEY, token, attempt.partition(".")[0], attempt, **more)


UNANSWERED = replace(A_HAS_IT, answer="", outcome="unknown", token=0, holds=0, returned=math.inf)


def test_a_grant_without_an_answer_is_one_if_the_audit_says_so() -> None:
    rows = [row(1, "lock", "a.1", 10), row(2, "lock", "", 10), row(3, "lock", "b.1", 20)]
    overlaps = ask((0.2, 0.3), "Acquire", "b.1", "Granted", token=20)
    assert found(story(UNANSWERED, overlaps, audit=rows)) == ["linearizable"]
    later = ask((1.0, 1.1), "Acquire", "b.1", "Granted", token=20)
    assert found(story(UNANSWERED, later, audit=rows)) == []


def test_a_request_that_left_no_trace_did_nothing() -> None:
    rows = [row(1, "lock", "b.1", 20)]
    assert found(story(UNANSWERED, replace(B_HAS_IT, called=0.2, returned=0.3), audit=rows)) == []


def test_an_unanswered_release_may_have_been_one() -> None:
    rows = [row(1, "lock", "a.1", 10), row(2, "lock", "", 10), row(3, "lock", "b.1", 20)]
    lost = replace(A_GIVES_IT, answer="", outcome="unknown")
    assert found(story(A_HAS_IT, lost, B_HAS_IT, audit=rows)) == []
    assert found(story(A_HAS_IT, replace(lost, outcome="refused"), B_HAS_IT, audit=rows)) == ["linearizable"]


def test_an_unanswered_renewal_may_have_moved_the_end() -> None:
    rows = [row(1, "lock", "a.1", 10), row(2, "lock", "a.1", 10)]
    lost = ask((0.9, 1.0), "Renew", "a.1", "", token=10)
    busy = ask((1.5, 1.6), "Acquire", "b.1", "Busy")
    assert found(story(A_HAS_IT, lost, busy, audit=rows)) == []
    taken = ask((1.1, 1.2), "Acquire", "b.1", "Granted", token=20)
    assert found(story(A_HAS_IT, lost, taken, audit=[*rows, row(3, "lock", "b.1", 20)])) == []


def test_who_was_refused_must_not_have_it() -> None:
    rows = [row(1, "lock", "a.1", 10)]
    refused = replace(UNANSWERED, outcome="refused", returned=0.1)
    assert found(story(refused, audit=rows)) == ["no grant is denied"]
    assert found(story(A_HAS_IT, audit=rows)) == []


def test_without_an_audit_what_is_unknown_stays_undecided() -> None:
    assert check(story(UNANSWERED, B_HAS_IT)).undecided == 1


# What is not promised is excused, and no more than that.

STEP = Injected("database clock step", "database clock", 0.3, 0.5, detail="+2 s", excuses=("belief",))
CRASH = Injected("kill database", "database", 0.65, 0.9)


def test_a_clock_that_is_set_moves_ends_and_nothing_else() -> None:
    too_early = ask((0.8, 0.9), "Acquire", "b.1", "Granted", token=20)
    too_late = ask((2.0, 2.1), "Renew", "a.1", "renewed", token=10)
    for excused in (too_early, too_late):
        assert found(story(A_HAS_IT, excused)) == ["linearizable"]
        assert found(story(A_HAS_IT, excused, faults=[STEP])) == []
    before_it = ask((0.11, 0.15), "Acquire", "b.1", "Granted", token=20)
    assert found(story(A_HAS_IT, before_it, faults=[STEP])) == ["linearizable"]
    much_later = ask((4.0, 4.1), "Renew", "a.1", "renewed", token=10)
    assert found(story(A_HAS_IT, much_later, faults=[STEP])) == ["linearizable"]
    wrong_token = replace(too_early, token=9)
    assert found(story(A_HAS_IT, wrong_token, faults=[STEP])) == ["linearizable"]


def test_a_release_may_be_lost_in_a_crash_of_a_database_that_may_lose_it() -> None:
    still_busy = (A_HAS_IT, A_GIVES_IT, ask((0.95, 0.99), "Acquire", "b.1", "Busy"))
    assert found(story(*still_busy)) == ["linearizable"]
    assert found(story(*still_busy, faults=[CRASH])) == []
    durable = story(*still_busy, faults=[CRASH])
    durable.run.store = "mariadb"
    assert found(durable) == ["linearizable"]
    after_its_end = ask((1.2, 1.3), "Acquire", "b.1", "Busy")
    assert found(story(A_HAS_IT, A_GIVES_IT, after_its_end, faults=[CRASH])) == ["linearizable"]


def test_a_hand_over_may_be_seen_and_then_be_lost_in_a_crash() -> None:
    """MariaDB shows it to others before it is on the disk. Nobody may be told that it is there."""
    lost = ask((0.5, 2.0), "Release", "a.1", "", token=10)
    seen = ask((0.6, 0.7), "Refresh", "b.1", "handed")
    over = ask((1.5, 1.6), "Release", "a.1", "NotHeld", token=10, why="expired")
    again = (A_HAS_IT, B_WAITS, lost, seen, over)
    rows = [row(1, "lock", "a.1", 10), row(2, "lock", "", 10)]
    for store, faults, violations in (
        ("mariadb", [CRASH], []),
        ("mariadb", [], ["linearizable"]),
        ("sqlite", [CRASH], ["linearizable"]),
    ):
        history = story(*again, faults=faults, audit=rows)
        history.run.store = store
        assert found(history) == violations, store


def test_who_comes_after_such_a_crash_may_find_the_lease_that_was_handed_over() -> None:
    lost = ask((0.5, 2.0), "Release", "a.1", "", token=10)
    seen = ask((0.6, 0.7), "Refresh", "b.1", "handed")
    gives_up = ask((0.92, 0.93), "Withdraw", "b.1", "Withdrawn")
    waits = ask((0.95, 0.99), "Acquire", "c.1", "Queued", wait=True)
    rows = [row(1, "lock", "a.1", 10), row(2, "lock", "", 10)]
    for store, faults, violations in (
        ("mariadb", [CRASH], []),
        ("mariadb", [], ["linearizable"]),
        ("postgres", [CRASH], ["linearizable"]),
    ):
        history = story(A_HAS_IT, B_WAITS, lost, seen, gives_up, waits, faults=faults, audit=rows)
        history.run.store = store
        assert found(history) == violations, (store, faults)


def test_who_is_told_to_wait_may_be_told_so_because_a_transaction_pins_the_lock() -> None:
    key = "fenced:0"
    asks = [replace(each, key=key) for each in (A_HAS_IT, ask((1.2, 1.3), "Acquire", "b.1", "Busy"))]
    update = Call("w", 1, "update", key, "a", 0.5, 1.4, "ok", 10)
    assert found(story(*asks, calls=[update])) == []
    assert found(story(*asks, calls=[replace(update, returned=1.1)])) == ["linearizable"]


def test_a_release_that_was_answered_long_before_a_crash_is_not_lost_in_it() -> None:
    busy = replace(ask((2.0, 2.1), "Acquire", "b.1", "Busy"), ttl=5.0)
    asks = (replace(A_HAS_IT, ttl=5.0), A_GIVES_IT, busy)
    soon, later = (replace(CRASH, began=A_GIVES_IT.returned + after, ended=1.95) for after in (0.9, 1.1))
    assert found(story(*asks, faults=[soon])) == []
    assert found(story(*asks, faults=[later])) == ["linearizable"]


def test_who_enters_again_may_be_told_to_wait_because_the_row_is_locked() -> None:
    """That takes as long as the timeout of half a second; its lease is still there."""
    again = ask((0.2, 0.65), "Acquire", "a.2", "Queued", wait=True)
    gives = ask((0.7, 0.8), "Release", "a.1", "Released", token=10)
    assert found(story(A_HAS_IT, again, gives)) == []
    assert found(story(A_HAS_IT, replace(again, returned=0.3), gives)) == ["linearizable"]


def test_a_key_with_other_than_plain_requests_is_not_left_out_in_silence() -> None:
    strange = ask((0.2, 0.3), "Acquire", "b.1", "Busy", plain=False)
    assert check(story(A_HAS_IT, strange)).undecided == 1
