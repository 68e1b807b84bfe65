"""What cannot work is refused where it is written: by its own error, with the value, and nothing locked."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncHoldfast, Holdfast, HoldfastError, InvalidKey, Settings, SettingsError
from holdfast.core.backoff import Backoff
from tests.clients.support import Stage

BAD_KEYS: dict[str, tuple[Any, str]] = {
    "empty": ("", "is empty"),
    "long": ("k" * 300, "300 characters; 255"),
    "one too long": ("k" * 256, "256 characters"),
    "NUL": ("a\0b", "U\\+0000 at position 1"),
    "newline": ("a\nb", "U\\+000A"),
    "escape": ("\x1b[2J", "U\\+001B at position 0"),
    "C1": ("a\x85", "U\\+0085"),
    "line separator": ("a\u2028b", "U\\+2028"),
    "surrogate": ("a\ud800", "U\\+D800"),
    "None": (None, "is of type NoneType; a key is a string"),
    "bytes": (b"key", "is of type bytes"),
    "int": (7, "key 7 is of type int"),
    "list": (["key"], "is of type list"),
}


@pytest.mark.parametrize("bad", BAD_KEYS)
def test_a_key_that_cannot_name_a_lock_is_refused(stage: Stage, bad: str) -> None:
    key, text = BAD_KEYS[bad]
    uses: list[Callable[[], Any]] = [
        lambda: stage.locks.acquire(key),
        lambda: stage.locks.try_acquire(key),
        lambda: stage.locks.inspect(key),
        lambda: stage.locks.history(key),
        lambda: stage.locks.break_lock(key, reason="stuck"),
        lambda: stage.locks.lock(key).acquire(),
    ]
    for use in uses:
        with pytest.raises(InvalidKey, match=text) as caught:
            stage.call(use)
        assert isinstance(caught.value, ValueError)
        assert caught.value.key == key
        assert len(str(caught.value)) < 200
        assert stage.everything() == []


@pytest.mark.parametrize(
    "key", ["k" * 255, "键" * 255, "\U0001f512", "a b", "workflow:1", "'\"`;--%_\\", "é", "e\u0301"]
)
def test_any_other_key_will_do(stage: Stage, key: str) -> None:
    lease = stage.call(stage.locks.acquire, key)
    (view,) = stage.everything()
    assert view.key == key
    stage.call(lease.release)


BAD_TIMES = {
    "negative": -1,
    "a little negative": -0.001,
    "negative timedelta": timedelta(seconds=-1),
    "nan": math.nan,
    "inf": math.inf,
    "minus inf": -math.inf,
    "too large for a float": 10**400,
    "True": True,
    "False": False,
    "str": "5",
    "bytes": b"5",
    "list": [5],
    "complex": 5j,
    "Decimal": Decimal(5),
}


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_a_time_that_is_none_is_refused(stage: Stage, bad: str) -> None:
    value = BAD_TIMES[bad]
    for name in ("ttl", "timeout", "max_hold"):
        with pytest.raises(SettingsError, match=f"^{name} is ") as caught:
            stage.call(stage.locks.acquire, "nightly", **{name: value})
        shown = value.total_seconds() if isinstance(value, timedelta) else value
        assert repr(shown)[:50] in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert stage.everything() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ttl": 0}, "ttl is 0 s, and not longer than the margin"),
        ({"ttl": 0.02}, "not longer than the margin of 0.0202 s"),
        ({"ttl": 0.03}, "would be renewed after 0.012 s, when it is not trusted any more"),
        ({"ttl": 86400 * 367}, "at most"),
        ({"max_hold": 0.01}, "not longer than the margin"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": -1}, "limit is -1"),
        ({"limit": 1.5}, "limit is 1.5"),
        ({"limit": True}, "limit is True"),
        ({"limit": "3"}, "limit is '3'"),
        ({"limit": 2**40}, "limit is 1099511627776"),
        ({"owner": ""}, "owner is ''"),
        ({"owner": 7}, "owner is 7"),
        ({"owner": b"me"}, "owner is b'me'"),
        ({"owner": "x" * 256}, "1 to 255 characters"),
        ({"owner": "a\nb"}, "cannot be printed"),
        ({"owner": "a\0b"}, "cannot be printed"),
        ({"owner": "\udc80"}, "cannot be printed"),
        ({"on_lost": 5}, "on_lost is 5"),
    ],
)
def test_an_option_that_cannot_work_is_refused(stage: Stage, options: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        stage.call(stage.locks.acquire, "nightly", **options)
    assert stage.everything() == []


def test_a_misspelt_option_is_refused(stage: Stage) -> None:
    with pytest.raises(TypeError, match="tll"):
        stage.call(stage.locks.acquire, "nightly", tll=5)
    with pytest.raises(TypeError, match="timeout"):
        stage.call(stage.locks.try_acquire, "nightly", timeout=5)
    assert stage.everything() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"reason": ""}, "for a reason"),
        ({"reason": "  "}, "for a reason"),
        ({"reason": None}, "for a reason"),
        ({"reason": 5}, "for a reason"),
        ({"reason": "\udc80"}, "reason"),
        ({"reason": "x", "by": ""}, "by is ''"),
        ({"reason": "x", "by": 5}, "by is 5"),
        ({"reason": "x", "by": "\udc80"}, "by '\\\\udc80'"),
        ({"reason": "x", "token": "5"}, "token is '5'"),
        ({"reason": "x", "token": True}, "token is True"),
    ],
)
def test_breaking_needs_a_reason_and_a_name(stage: Stage, options: dict[str, Any], text: str) -> None:
    lease = stage.call(stage.locks.acquire, "nightly")
    with pytest.raises(SettingsError, match=text):
        stage.call(stage.locks.break_lock, "nightly", **options)
    lease.check()
    assert stage.state("nightly") == "held"
    stage.call(lease.release)


@pytest.mark.parametrize("limit", [0, -1, 2**63 - 1, 2**70, 1.5, "5", True, None])
def test_a_limit_is_a_sensible_number(stage: Stage, limit: Any) -> None:
    for use in (lambda: stage.locks.sweep(limit=limit), lambda: stage.locks.history("nightly", limit=limit)):
        with pytest.raises(SettingsError, match="limit is"):
            stage.call(use)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prefix": 5}, InvalidKey),
        ({"prefix": "\ud800"}, InvalidKey),
        ({"owner": ""}, SettingsError),
        ({"owner": "\udc80"}, SettingsError),
        ({"type": ""}, InvalidKey),
        ({"type": 5}, InvalidKey),
        ({"state": "locked"}, SettingsError),
    ],
)
def test_a_list_of_nonsense_is_refused(
    stage: Stage, options: dict[str, Any], error: type[HoldfastError]
) -> None:
    async def collect() -> list[Any]:
        return [view async for view in stage.locks.list(**options)]

    with pytest.raises(error):
        stage.call(collect if stage.is_async else lambda: list(stage.locks.list(**options)))


@pytest.mark.parametrize("client", [Holdfast, AsyncHoldfast])
@pytest.mark.parametrize(
    ("url", "text"),
    [
        (5, "url is 5"),
        (b"memory://", "it must be a string"),
        (Path("locks.db"), "it must be a string"),
        ("", "'' is no url"),
        ("locks.db", "write 'sqlite:///locks.db'"),
        ("sqlite", "is no url"),
        ("sqlite:locks.db", "is no url"),
        ("sqlite:/locks.db", "is no url"),
        ("redis://:secret@localhost", "there is no store for redis:// in this release"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite://locks.db", "names no file: use sqlite:///relative.db"),
        ("sqlite://[", "names no file"),
        ("sqlite:///:memory:", "or memory://"),
        ("sqlite:///a%00b", "control character"),
        ("sqlite:///a\nb", "control character"),
        ("sqlite:///a.db#b", "%23"),
        ("sqlite:///a.db?synchronous=off", "synchronous is 'off'; it must be one of"),
        ("sqlite:///a.db?busy_timeout=soon", "busy_timeout"),
        ("sqlite:///a.db?busy_timeout=nan", "busy_timeout"),
        ("sqlite:///a.db?busy_timeout=inf", "busy_timeout"),
        ("sqlite:///a.db?busy_timeout=-1", "busy_timeout"),
        ("sqlite:///a.db?cache=shared&mode=ro", "unknown options: cache, mode"),
        ("memory://name/path", "has more than a name"),
        ("memory:///path", "has more than a name"),
        ("memory://name?x=1", "has more than a name"),
    ],
)
def test_an_address_that_names_no_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: type, url: Any, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=text) as caught:
        client(url)
    assert isinstance(caught.value, ValueError)
    assert list(tmp_path.iterdir()) == []


def test_an_address_may_hold_any_name(tmp_path: Path) -> None:
    for name in ("a b.db", "%23.db", "%3F.db", "100%25.db", "锁.db", "a'b.db"):
        with (
            Holdfast(f"sqlite:///{tmp_path}/{name}?synchronous=FULL&busy_timeout=0.5") as locks,
            locks.hold("k"),
        ):
            pass
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"a b.db", "#.db", "?.db", "100%.db", "锁.db", "a'b.db"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"heartbeat": 0}, r"heartbeat 0.0 s <= 0.9 \* claim"),
        ({"heartbeat": 4.6, "claim": 5}, r"heartbeat 4.6 s <= 0.9 \* claim 5.0 s"),
        ({"claim": 15}, "claim < patience 15.0 s"),
        ({"patience": 1}, "patience 1.0 s"),
        ({"renew_at": 0}, "renew_at is 0"),
        ({"renew_at": 1}, "renew_at is 1"),
        ({"renew_at": 1.5}, "renew_at is 1.5"),
        ({"renew_at": 0.99}, "not trusted any more"),
        ({"renew_at": "soon"}, "renew_at is 'soon'"),
        ({"ttl": None}, "ttl is None"),
        ({"ttl": -1}, "ttl is -1"),
        ({"ttl": math.inf}, "ttl is inf"),
        ({"margin": 30}, "not longer than the margin of 30 s"),
        ({"margin": 12.5}, "not trusted any more"),
        ({"margin": -1}, "margin is -1"),
        ({"max_hold": -1}, "max_hold is -1"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": True}, "limit is True"),
        ({"sweep_every": 0}, "use None to switch sweeping off"),
        ({"history": "some"}, "history is 'some'"),
        ({"history": None}, "history is None"),
        ({"release_timeout": -1}, "release_timeout is -1"),
        ({"backoff": 5}, "backoff is 5"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_they_are_made(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings(**settings)


@pytest.mark.parametrize(("heartbeat", "claim"), [(4.5, 5.0), (2.97, 3.3), (7.83, 8.7), (9.0, 1e303)])
def test_a_heartbeat_may_be_nine_tenths_of_a_claim_window(heartbeat: float, claim: float) -> None:
    """Whatever `0.9 * claim` is in binary."""
    assert Settings(heartbeat=heartbeat, claim=claim, patience=claim * 3).heartbeat == heartbeat


def test_settings_may_be_given_as_times(url: str) -> None:
    settings = Settings(ttl=timedelta(minutes=1), heartbeat=timedelta(seconds=1), backoff=Backoff(0.1, 1.0))  # type: ignore[arg-type]
    assert settings.ttl == 60.0
    with Holdfast(url, settings=settings, ttl=timedelta(seconds=5)) as locks:
        assert locks.settings.ttl == 5.0
        assert locks.settings.heartbeat == 1.0


@pytest.mark.parametrize("client", [Holdfast, AsyncHoldfast])
def test_a_client_checks_its_settings(url: str, client: type) -> None:
    for options, text in (
        ({"ttl": -1}, "ttl is -1"),
        ({"ttl": 0.01}, "margin"),
        ({"history": "some"}, "history is 'some'"),
        ({"max_hold": "x"}, "max_hold is 'x'"),
        ({"settings": {"ttl": 5}}, "it must be a Settings object"),
    ):
        with pytest.raises(SettingsError, match=text):
            client(url, **options)
