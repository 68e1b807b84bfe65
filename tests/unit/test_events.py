"""Which events are kept at which level."""

from typing import get_args

import pytest

from holdfast.core.events import HISTORY_LEVELS, NOTABLE, EventKind, HistoryLevel, is_kept

KINDS = get_args(EventKind)


def test_all_levels_are_listed():
    assert get_args(HistoryLevel) == HISTORY_LEVELS


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_kept_at_all(kind):
    assert is_kept(kind, "all")


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_rare_is_kept_at_notable(kind):
    rare = {"expired", "broken", "completed", "failed", "resized", "deadlocked", "abandoned", "forgotten"}
    rare |= {"joined", "draining", "left", "died"}
    assert is_kept(kind, "notable") == (kind in NOTABLE) == (kind in rare)


@pytest.mark.parametrize("kind", KINDS)
def test_of_an_operation_everything_is_notable(kind):
    assert is_kept(kind, "notable", operation=True)
    assert is_kept(kind, "none", operation=True) == (kind in ("broken", "forgotten"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_operators_do_is_kept_even_at_none(kind):
    """Somebody took a lock away from somebody, or deleted work."""
    assert is_kept(kind, "none") == (kind in ("broken", "forgotten"))
