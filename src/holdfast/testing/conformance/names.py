"""Hostile names: keys are compared byte for byte, and no text means anything to the store."""

from __future__ import annotations

from holdfast.core.requests import Broken, RefreshTicket, Released, RenewLease, Withdrawn
from holdfast.testing.conformance.asker import Asker

# Each of these is another lock. Collations, normalisation, type affinity, patterns, quoting and JSON
# have each made some of them the same somewhere.
KEYS = (
    "Key",
    "key",
    "KEY",
    "kéy",  # composed
    "ke\u0301y",  # decomposed
    "key ",
    " key",
    "key\u00a0",
    "key\u200b",  # with a zero-width space
    "ß",
    "ss",
    "ı",
    "i",
    "İ",
    "1",
    "01",
    "1.0",
    "1e0",
    "+1",
    "null",
    "true",
    "[1]",
    '["key"]',
    '{"key": 1}',
    "'key'",
    '"key"',
    "`key`",
    "'; DROP TABLE holdfast_locks; --",
    "key\\",
    "key\\n",
    "%",
    "%%",
    "k%y",
    "_",
    "k_y",
    "*",
    "k?y",
    ":key",
    "$1",
    "{}",
    "%s",
    "../key",
    "key/",
    "key#",
    "key?",
    "锁",
    "🔒",
    "🔓",
    "\U0010fffd",
    "\ufffd",
    "e" * 255,
    "e" * 254,
    "锁" * 255,
    "🔒" * 255,
    "🔒" * 254 + "🔓",
)


class Names:
    """Every key is itself and no other, through every request."""

    def test_every_key_is_another_lock(self, ask: Asker) -> None:
        """P2 (seed trap 16): merged keys exclude strangers, split ones exclude nobody."""
        for number, key in enumerate(KEYS):
            ask.take("a-1", now=100.0 + number / 1000, key=key, owner=f"o-{number}")
        for number, key in enumerate(KEYS):
            view = ask.look(now=101.0, key=key)
            assert view.holder is not None
            assert (view.key, view.holder.owner) == (key, f"o-{number}")
        assert [view.key for view in ask.page(now=101.0, limit=1000).locks] == sorted(KEYS)

    def test_every_key_can_be_renewed_in_a_batch(self, ask: Asker) -> None:
        tokens = {key: ask.take("a-1", now=100.0, key=key).token for key in KEYS}
        batch = [RenewLease(key, "a-1", token, 10.0) for key, token in tokens.items()]
        answers = ask.renew_all(batch, now=105.0)
        assert {answer.outcome for answer in answers} == {"renewed"}
        assert {ask.look(now=105.0, key=key).expires_in for key in KEYS} == {10.0}

    def test_every_key_can_be_waited_for(self, ask: Asker) -> None:
        tokens = {}
        for key in KEYS:
            tokens[key] = ask.take("a-1", now=100.0, key=key).token
            assert ask.queue("b-1", now=101.0, key=key).position == 1
        batch = [RefreshTicket(key, "b-1", 15.0) for key in KEYS]
        assert {(answer.outcome, answer.head) for answer in ask.refresh_all(batch, now=102.0)} == {
            ("waiting", True)
        }
        for key in KEYS:
            assert ask.release("a-1", tokens[key], now=103.0, key=key) == Released(0, next="b-1")
        assert [signal.key for signal in ask.full_signals()] == list(KEYS)

    def test_every_key_can_be_released_withdrawn_and_broken(self, ask: Asker) -> None:
        for key in KEYS:
            token = ask.take("a-1", now=100.0, key=key).token
            assert ask.release("a-1", token, now=101.0, key=key) == Released()
            ask.take("b-1", now=102.0, key=key)
            assert ask.withdraw("b-1", now=103.0, key=key) == Withdrawn()
            ask.take("c-1", now=104.0, key=key)
            assert isinstance(ask.break_(now=105.0, key=key), Broken)
            assert [event.key for event in ask.history(key=key)] == [key]

    def test_every_key_can_be_a_prefix_and_a_cursor(self, ask: Asker) -> None:
        for key in KEYS:
            ask.take("a-1", now=100.0, key=key)
        for key in KEYS:
            found = [view.key for view in ask.page(now=100.0, prefix=key, limit=1000).locks]
            assert found == sorted(other for other in KEYS if other.startswith(key))
            found = [view.key for view in ask.page(now=100.0, after=key, limit=1000).locks]
            assert found == sorted(other for other in KEYS if other > key)

    def test_every_key_can_be_swept(self, ask: Asker) -> None:
        for key in KEYS:
            ask.take("a-1", now=100.0, key=key)
        assert ask.sweep(now=110.0).expired == len(KEYS)
        assert ask.sweep(now=110.0, idle=0.0).locks == len(KEYS)

    def test_owners_attempts_and_reasons_may_be_any_text(self, ask: Asker) -> None:
        for number, text in enumerate(KEYS):
            key = f"k{number}"
            token = ask.take(text, now=100.0, key=key, owner=text).token
            ask.take(f"{text} again", now=100.0, key=key, owner=text)
            assert ask.renew(text, token, now=101.0, key=key).outcome == "renewed"
            assert [view.key for view in ask.page(now=101.0, owner=text).locks] == [key]
            answer = ask.break_(now=102.0, key=key, by=text, reason=text)
            assert isinstance(answer, Broken)
            assert answer.holder.owner == text
            lost = ask.renew(text, token, now=103.0, key=key)
            assert (lost.why, lost.by, lost.reason) == ("broken", text, text)
            (event,) = ask.history(key=key)
            assert (event.owner, event.by, event.reason) == (text, text, text)
