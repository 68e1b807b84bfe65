"""Rights: how they are written, what they allow, and which of them are needed."""

import pytest

from holdfast.core import access
from holdfast.core.access import VERBS, Right, new_right, parse_right, prefixes
from holdfast.errors import InvalidKey, SettingsError


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("acquire:nightly", Right("acquire", "nightly", prefix=False)),
        ("acquire:build:*", Right("acquire", "build:", prefix=True)),
        ("observe:*", Right("observe", "", prefix=True)),
        ("break:a:b:c", Right("break", "a:b:c", prefix=False)),
        ("admin:a**", Right("admin", "a*", prefix=True)),
        ("observe:a*b", Right("observe", "a*b", prefix=False)),
        (f"observe:{'é' * 255}*", Right("observe", "é" * 255, prefix=True)),
    ],
)
def test_a_right_is_a_verb_and_a_key_or_prefix(text, right):
    assert parse_right(text) == right
    assert str(right) == text


@pytest.mark.parametrize(
    "text", ["", "acquire", "acquire:", ":build", "read:build", "Acquire:build", " acquire:build", None, 7]
)
def test_what_is_no_right_is_refused_with_an_example(text):
    with pytest.raises(SettingsError, match=r"is no right; write a verb .* for example acquire:build:\*"):
        parse_right(text)


@pytest.mark.parametrize(
    "text", ["observe:a*b", "acquire:*:b", "admin:a**", "break:**", "observe:build:*:test"]
)
def test_a_new_right_has_no_star_but_at_its_end(text):
    """It would mean a key with a star in it, and nobody means that."""
    with pytest.raises(SettingsError, match=r"be the last character. Write [a-z]+:[a-z:]*\* for all"):
        new_right(text)


@pytest.mark.parametrize("text", ["observe:a*", "acquire:*", "admin:build:x"])
def test_a_new_right_may_be_a_key_a_prefix_or_everything(text):
    assert new_right(text) == parse_right(text)


@pytest.mark.parametrize("key", ["a\nb", "a" * 256, "a" * 256 + "*", "\ud800"])
def test_a_right_to_what_cannot_be_a_key_is_refused(key):
    with pytest.raises(InvalidKey):
        parse_right(f"acquire:{key}")


@pytest.mark.parametrize("verb", VERBS)
def test_admin_gives_every_verb_and_the_others_only_their_own(verb):
    assert parse_right("admin:build:*").allows(verb, "build:main")
    for other in VERBS:
        expected = other in (verb, "admin")
        assert parse_right(f"{other}:build:*").allows(verb, "build:main") is expected


def test_a_prefix_allows_what_begins_with_it_and_a_key_only_itself():
    prefix, single = parse_right("observe:build:*"), parse_right("observe:build")
    assert prefix.allows("observe", "build:")
    assert prefix.allows("observe", "build:main")
    assert not prefix.allows("observe", "build")
    assert not prefix.allows("observe", "xbuild:main")
    assert single.allows("observe", "build")
    assert not single.allows("observe", "build:main")
    assert parse_right("observe:*").allows("observe", "anything")


def rights(*texts):
    return [parse_right(text) for text in texts]


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ([], []),
        (["observe:b:*", "observe:a:*"], ["observe:a:*", "observe:b:*"]),
        (["observe:a:b:*", "observe:a:*", "observe:a:b"], ["observe:a:*"]),
        (["observe:a", "observe:a*"], ["observe:a*"]),
        (["observe:a", "observe:a"], ["observe:a"]),
        (["observe:a", "observe:ab", "observe:a:*"], ["observe:a", "observe:a:*", "observe:ab"]),
        (["acquire:x:*", "break:y:*", "observe:a"], ["observe:a"]),
        (["admin:a:*", "observe:a:b"], ["admin:a:*"]),
        (["observe:z", "observe:*", "admin:q*"], ["observe:*"]),
    ],
)
def test_the_ranges_of_a_verb_are_in_order_and_do_not_overlap(given, needed):
    assert [str(right) for right in prefixes(rights(*given), "observe")] == needed


def test_asking_for_access_leaves_the_time_to_the_store():
    asked = access.GrantAccess("0123456789ab", "ci", "00" * 32, ("acquire:build:*",))
    assert (asked.ttl, asked.now) == (None, None)
    assert access.RevokeAccess("0123456789ab").now is None
    assert access.ListAccess().now is None
