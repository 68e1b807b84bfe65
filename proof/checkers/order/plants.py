"""Making a history wrong in one place, and seeing that the checker says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proof.checkers import order
from proof.checkers.order.rules import Rule
from proof.checkers.order.story import Story

KEY = "plain:1"
READER: dict[str, Any] = {"mode": "shared"}
ONE: dict[str, Any] = {"mode": "permits", "permits": 3}
TWO: dict[str, Any] = {"mode": "permits", "permits": 3, "take": 2}


def found(story: Story) -> dict[str, str]:
    """Return what is violated, and in what words."""
    return {each.rule: each.text for each in order.check(story.history).violations}


def holds(story: Story, *applied: Rule) -> None:
    """See that nothing is violated, and that the rules really were applied."""
    verdict = order.check(story.history)
    assert not verdict.violations
    for rule in applied:
        assert verdict.checked[rule.name], rule.name


def finds(story: Story, rule: Rule, *values: Any) -> None:
    """See that one rule is violated and no other, and that its text has the values."""
    violations = found(story)
    assert set(violations) == {rule.name}, violations
    for value in values:
        assert str(value) in violations[rule.name]


def change(records: list[Any], which: Callable[[Any], Any], **fields: Any) -> None:
    """Make the first record that *which* is true of another one."""
    place = next(n for n, each in enumerate(records) if which(each))
    records[place] = replace(records[place], **fields)


def drop(records: list[Any], which: Callable[[Any], Any]) -> Any:
    """Remove the first record that *which* is true of."""
    return records.pop(next(n for n, each in enumerate(records) if which(each)))


def a_turn(story: Story, key: str, owner: str, **fields: Any) -> int:
    """Take a lock and give it back; return the token."""
    turn = story.take(key, owner, **fields)
    story.wait(0.1)
    turn.release()
    return turn.token


def a_day() -> Story:
    """Return a story with every kind of thing in it."""
    story = Story()
    a_turn(story, KEY, "a/1")
    first = story.take(KEY, "a/2")
    again = story.take(KEY, "a/2", kind="reenter")
    waiting = story.take(KEY, "b/1")
    late = story.take(KEY, "c/1")
    story.wait(0.2)
    waiting.refresh()
    late.refresh()
    first.renew()
    again.release()
    first.release()
    waiting.ask()
    story.take(KEY, "d/1", kind="try", wait=0.0)
    waiting.walk_away()
    story.wait(0.5)
    late.refresh()
    story.wait(0.6)
    late.ask()  # takes over
    late.release()
    readers = [story.take("shared:1", f"{name}/1", terms=READER) for name in "abc"]
    writer = story.take("shared:1", "d/2")
    behind = story.take("shared:1", "e/1", terms=READER)
    readers[0].release()
    writer.withdraw()
    behind.ask()
    for each in (*readers[1:], behind):
        each.release()
    one, two = story.take("permits:1", "a/3", terms=ONE), story.take("permits:1", "b/3", terms=TWO)
    third = story.take("permits:1", "c/3", terms=ONE)
    one.release()
    third.ask()
    two.release()
    third.release()
    for value in ("x", "y", "z"):
        turn = story.take("fenced:1", f"a/{value}")
        turn.update(value)
        turn.release()
    return story
