"""Key names: what is allowed, building, parsing, and the end of a prefix."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core import keys
from holdfast.core.keys import ParsedKey
from holdfast.errors import InvalidKey

FORBIDDEN = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]
characters = st.characters(exclude_categories=["Cs"], exclude_characters=FORBIDDEN)
parts = st.text(characters, min_size=1, max_size=20) | st.text("%3A25:a", min_size=1, max_size=12)
any_text = st.text(characters | st.sampled_from(["\ud7ff", "\ue000", "\U0010ffff", "a"]), max_size=6)


@pytest.mark.parametrize("key", ["a", "Key", " key ", "é", "🔒", "a:b", "::", "%", "'\"", "e" * 255])
def test_nearly_anything_can_name_a_lock(key):
    assert keys.validate(key) == key


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is empty"),
        ("e" * 256, "has 256 characters; 255 are allowed"),
        (7, "is of type int; a key is a string"),
        (None, "is of type NoneType; a key is a string"),
        (b"key", "is of type bytes; a key is a string"),
        ("a\nb", "has the forbidden character U+000A at position 1"),
        ("\x00", "has the forbidden character U+0000 at position 0"),
        ("ab\x7f", "has the forbidden character U+007F at position 2"),
        ("\u2028", "has the forbidden character U+2028 at position 0"),
        ("\ud800", "has the forbidden character U+D800 at position 0"),
    ],
)
def test_what_cannot_name_a_lock_is_said_why(key, reason):
    with pytest.raises(InvalidKey) as caught:
        keys.validate(key)
    assert caught.value.reason == reason
    assert caught.value.key == key


def test_the_schemes_of_workflow_engines():
    """R6."""
    assert keys.workflow(123) == "workflow:123"
    assert keys.node(123, "fetch-calendars") == "node:123:fetch-calendars"
    assert keys.iteration(123, "delete-loop", 5) == "node:123:delete-loop:5"
    assert keys.resource("database", "calendar_db") == "resource:database:calendar_db"


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        ("workflow:123", ParsedKey("workflow", ("123",), {"id": "123"})),
        ("node:1:fetch", ParsedKey("node", ("1", "fetch"), {"workflow": "1", "node": "fetch"})),
        (
            "node:1:loop:5",
            ParsedKey("node", ("1", "loop", "5"), {"workflow": "1", "parent": "loop", "iteration": "5"}),
        ),
        ("resource:db:x", ParsedKey("resource", ("db", "x"), {"type": "db", "id": "x"})),
        ("nightly", ParsedKey(None, ("nightly",), {})),
        ("a%3Ab", ParsedKey(None, ("a:b",), {})),
        ("pull:image:7", ParsedKey("pull", ("image", "7"), {})),
        ("workflow:1:2", ParsedKey("workflow", ("1", "2"), {})),
        ("x:", ParsedKey("x", ("",), {})),
    ],
)
def test_a_key_is_taken_apart_at_its_colons(key, parsed):
    assert keys.parse(key) == parsed


def test_what_is_no_key_cannot_be_parsed():
    with pytest.raises(InvalidKey):
        keys.parse("")


@given(parts)
def test_parsing_gives_back_what_was_built(id):
    assert keys.parse(keys.workflow(id)).fields == {"id": id}


@given(parts, parts, st.integers())
def test_parsing_gives_back_all_parts(workflow, parent, number):
    assert keys.parse(keys.node(workflow, parent)).fields == {"workflow": workflow, "node": parent}
    assert keys.parse(keys.iteration(workflow, parent, number)).parts == (workflow, parent, str(number))
    assert keys.parse(keys.resource(workflow, parent)).fields == {"type": workflow, "id": parent}


@given(parts, parts, parts, parts)
def test_different_parts_never_give_the_same_key(a, b, c, d):
    assume((a, b) != (c, d))
    assert keys.node(a, b) != keys.node(c, d)


@given(parts, parts, parts)
def test_a_node_is_never_an_iteration(a, b, c):
    assert keys.node(a, b) != keys.iteration(a, b, c)


def test_an_empty_part_is_refused():
    with pytest.raises(InvalidKey, match="empty part"):
        keys.node(123, "")


def test_a_key_that_is_too_long_is_refused_when_it_is_built():
    with pytest.raises(InvalidKey, match="255 are allowed"):
        keys.workflow("e" * 250)


@given(parts, parts)
def test_the_prefix_of_a_type_is_that_of_its_keys_and_of_no_others(type, other):
    key = f"{keys.type_prefix(type)}1"
    assert keys.parse(key).type == type
    assert key.startswith(keys.type_prefix(other)) == (type == other)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("node:", "node;"),
        ("", None),
        ("\U0010ffff", None),
        ("a\U0010ffff", "b"),
        ("a\U0010ffff\U0010ffff", "b"),
        ("\ud7ff", "\ue000"),
        ("\uffff", "\U00010000"),
    ],
)
def test_the_end_of_a_prefix(prefix, end):
    assert keys.prefix_end(prefix) == end


@given(any_text, any_text)
def test_a_string_is_in_the_range_of_a_prefix_exactly_if_it_begins_with_it(prefix, text):
    for candidate in (text, prefix + text):
        end = keys.prefix_end(prefix)
        in_range = candidate >= prefix and (end is None or candidate < end)
        assert in_range == candidate.startswith(prefix)


@given(any_text, any_text)
def test_code_points_sort_as_their_bytes_do(one, other):
    """So one range serves Python, SQLite and every database with a binary collation."""
    assert (one < other) == (one.encode() < other.encode())


@given(any_text)
def test_the_end_of_a_prefix_has_a_utf8_form(prefix):
    end = keys.prefix_end(prefix)
    assert end is None or end.encode() > prefix.encode()


def test_the_key_of_an_operation():
    assert keys.operation("pull", "model-7b") == "pull:model-7b"
    assert keys.operation("a:b", "c:d") == "a%3Ab:c%3Ad"
    with pytest.raises(InvalidKey, match="empty part"):
        keys.operation("", "model-7b")
    with pytest.raises(InvalidKey, match="empty part"):
        keys.operation("pull", "")
