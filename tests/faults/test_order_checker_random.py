"""The checker of the order of grants on random histories: silent on those that are right, and only those.

A story is told from a seed, by a model in which one thing happens after the other. Then one record of it,
chosen by the same dice, is falsified. See `test_order_checker` for what each rule says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from proof.checkers import order
from proof.checkers.order.plants import ONE, READER, TWO
from proof.checkers.order.story import BEGAN, EPOCH, Story, Turn
from proof.histories.records import Audit, Call, History

SEEDS = range(15)
KEYS = ("plain:1", "plain:2", "shared:1", "permits:1", "fenced:1")
TERMS = {"shared": (READER, READER, None), "permits": (ONE, TWO)}


def tell(dice: random.Random, actions: int = 100) -> Story:
    """Return a story in which many take, enter, keep, lose and give back locks, and wait for them."""
    story = Story(dice.choice(("sqlite", "postgres")))
    held: list[Turn] = []
    waiting: list[Turn] = []
    for number in range(actions):
        story.wait(dice.choice((0.0, 0.01, 0.1, 0.3)))
        for turn in waiting:
            turn.refresh()
        action = dice.random()
        if action < 0.45 or not held:
            key = dice.choice(KEYS)
            terms = dice.choice(TERMS.get(key.partition(":")[0], (None,)))
            taken = story.take(
                key, f"w{number}/1", ttl=dice.uniform(0.6, 1.5), terms=terms, lost=dice.random() < 0.05
            )
            _sort(taken, held, waiting)
        elif action < 0.55:
            turn = dice.choice(held)
            if not turn.terms and turn.trusted_until > story.boot:
                _sort(story.take(turn.call.key, turn.call.owner, kind="reenter"), held, waiting)
        elif action < 0.65:
            dice.choice(held).renew()
        elif action < 0.7 and waiting:
            waiting.pop(dice.randrange(len(waiting))).withdraw()
        else:
            _let_go(held.pop(dice.randrange(len(held))), dice)
        for turn in list(waiting):
            if turn.ask() == "Granted":
                waiting.remove(turn)
                held.append(turn)
    for turn in held:
        turn.walk_away()
    return story


def _sort(turn: Turn, held: list[Turn], waiting: list[Turn]) -> None:
    if turn.answer == "Granted" and turn.call.outcome == "ok":
        held.append(turn)
    elif turn.answer == "Queued" and turn.call.outcome != "refused":
        waiting.append(turn)


def _let_go(turn: Turn, dice: random.Random) -> None:
    if turn.call.key.startswith("fenced:") and turn.trusted_until > turn._story.boot:
        turn.update(f"value of {turn.attempt}")
    if dice.random() < 0.25:
        turn.walk_away()
    else:
        turn.release(lost=dice.random() < 0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_is_right_violates_nothing(seed: int) -> None:
    verdict = order.check(tell(random.Random(seed)).history)
    assert not verdict.violations
    assert verdict.figures["grants"] > 30


# Falsehoods. Each changes one thing that was so, or returns False if there is nothing of the kind.


def tokens_are_exchanged(history: History, dice: random.Random) -> bool:
    grants = _grants(history)
    pairs = [(a, b) for a in grants for b in grants if a.key == b.key and a.token < b.token]
    if pairs:
        one, two = dice.choice(pairs)
        places = history.calls.index(one), history.calls.index(two)
        history.calls[places[0]], history.calls[places[1]] = (
            replace(one, token=two.token),
            replace(two, token=one.token),
        )
    return bool(pairs)


def an_update_is_lost(history: History, dice: random.Random) -> bool:
    values = history.resources.get("fenced:1", [])
    if values:
        values.remove(dice.choice(values))
    return bool(values)


def two_updates_change_places(history: History, dice: random.Random) -> bool:
    values = history.resources.get("fenced:1", [])
    if len(values) < 2:
        return False
    one, two = dice.sample(range(len(values)), 2)
    values[one], values[two] = values[two], values[one]
    return True


def somebody_trusts_too_long(history: History, dice: random.Random) -> bool:
    place = dice.randrange(len(history.trusts))
    trust = history.trusts[place]
    rows = [row for row in history.audit if row.owner == trust.owner and row.token == trust.token]
    last = max(row.expires_at for row in rows if row.what != "unhold")
    # By more than the bounds of the clocks leave open.
    history.trusts[place] = replace(trust, until=last / 1e6 - EPOCH + BEGAN + 0.06)
    return True


def a_release_was_not_asked_for(history: History, dice: random.Random) -> bool:
    released = [ask for ask in history.asks if ask.kind == "Release" and ask.answer == "Released"]
    if released:
        history.asks.remove(dice.choice(released))
    return bool(released)


def a_lease_begins_before_the_end(history: History, dice: random.Random) -> bool:
    """Let a lease that ran out and was taken over have lasted a little longer."""
    taken = []
    for key in ("plain:1", "plain:2"):
        rows = [n for n, row in enumerate(history.audit) if row.key == key and row.what == "lock"]
        for one, two in pairwise(rows):
            before, after = history.audit[one], history.audit[two]
            over = before.attempt and after.attempt and before.token != after.token
            if over and before.expires_at <= after.granted_at:
                taken.append((one, after.granted_at))
    if taken:
        place, end = dice.choice(taken)
        history.audit[place] = replace(history.audit[place], expires_at=end + 1)
    return bool(taken)


def a_grant_is_not_in_the_tables(history: History, dice: random.Random) -> bool:
    grant = dice.choice(_grants(history))
    history.audit = [row for row in history.audit if (row.key, row.token) != (grant.key, grant.token)]
    return True


def a_token_falls_at_the_store(history: History, dice: random.Random) -> bool:
    tokens = sorted({(row.key, row.token) for row in history.audit if row.attempt and row.token})
    later = [two for one, two in pairwise(tokens) if one[0] == two[0]]
    key, token = dice.choice(later)
    lower = min(each for other, each in tokens if other == key) - 1

    def fall(row: Audit) -> Audit:
        return replace(row, token=lower) if (row.key, row.token) == (key, token) else row

    history.audit = [fall(row) for row in history.audit]
    return bool(later)


def a_refusal_was_a_grant(history: History, dice: random.Random) -> bool:
    once = [call for call in _grants(history) if sum(c.owner == call.owner for c in history.calls) <= 2]
    call = dice.choice(once)
    history.calls[history.calls.index(call)] = replace(call, outcome="refused", token=0)
    history.trusts = [trust for trust in history.trusts if trust.owner != call.owner]
    return True


def a_stranger_is_granted(history: History, dice: random.Random) -> bool:
    attempts = sorted({row.attempt for row in history.audit if row.attempt})
    attempt = dice.choice(attempts)
    history.audit = [
        replace(row, attempt="nobody's") if row.attempt == attempt else row for row in history.audit
    ]
    return True


def who_waits_changes_places(history: History, dice: random.Random) -> bool:
    """Let two that are in a queue at once have joined it in the other order."""
    pairs = []
    for row in history.audit:
        if row.what == "lock" and row.waiters >= 2:
            waiting: dict[int, str] = {}
            for each in history.audit[: row.id]:
                if each.key == row.key and each.what == "ticket":
                    waiting[each.number] = each.attempt
                elif each.key == row.key and each.what == "unticket":
                    waiting.pop(each.number, None)
            granted = {each.attempt for each in history.audit[row.id :] if each.what in ("lock", "hold")}
            served = [number for number, attempt in sorted(waiting.items()) if attempt in granted]
            pairs += [(row.key, one, two) for one, two in pairwise(served)]
    if pairs:
        key, one, two = dice.choice(pairs)
        other = {one: two, two: one}
        history.audit = [
            replace(row, number=other.get(row.number, row.number)) if row.key == key and row.number else row
            for row in history.audit
        ]
    return bool(pairs)


def _grants(history: History) -> list[Call]:
    return [call for call in history.calls if call.kind == "acquire" and call.outcome == "ok"]


FALSEHOODS: list[Callable[[History, random.Random], bool]] = [
    tokens_are_exchanged,
    an_update_is_lost,
    two_updates_change_places,
    somebody_trusts_too_long,
    a_release_was_not_asked_for,
    a_lease_begins_before_the_end,
    a_grant_is_not_in_the_tables,
    a_token_falls_at_the_store,
    a_refusal_was_a_grant,
    a_stranger_is_granted,
    who_waits_changes_places,
]


@pytest.mark.parametrize("falsify", FALSEHOODS, ids=lambda each: each.__name__)
def test_a_falsehood_in_a_random_history_is_found(falsify: Callable[[History, random.Random], bool]) -> None:
    applied = 0
    for seed in SEEDS[:10]:
        dice = random.Random(seed)
        history = tell(dice).history
        if falsify(history, dice):
            applied += 1
            assert order.check(history).violations, f"seed {seed}"
    assert applied >= 5
