"""Bodies and queries: what fits is read, the rest is refused with its name, its value and what it must be."""

import json

import pytest

from holdfast.core.wire.fields import REQUIRED, Field, Fields
from holdfast.core.wire.shapes import (
    Flag,
    JsonText,
    Key,
    Many,
    Number,
    OneOf,
    Text,
    Whole,
    WorkType,
    read_json,
)
from holdfast.errors import InvalidKey, RequestRefused, SettingsError

THING = Fields(
    {
        "name": Field(Text(10), REQUIRED),
        "size": Field(Number(0, 100, above=True), 1.0),
        "count": Field(Whole(0, 9), 3),
        "big": Field(Flag(), False),
        "mode": Field(OneOf(("a", "b")), "a"),
        "keys": Field(Many(Key(), 2), ()),
        "at": Field(Text(20, 0, "[a-z]*"), ""),
    }
)
USUAL = {"size": 1.0, "count": 3, "big": False, "mode": "a", "keys": (), "at": ""}


def test_what_is_not_said_is_as_usual():
    assert THING.read({"name": "x"}) == {"name": "x", **USUAL}


def test_everything_that_fits_is_read():
    given = {"name": "x", "size": 2, "count": 4.0, "big": True, "mode": "b", "keys": ["k"], "at": "abc"}
    assert THING.read(given) == {**given, "keys": ("k",), "count": 4}
    assert isinstance(THING.read(given)["count"], int)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "has no name"),
        ([], "must be an object"),
        ({"name": "x", "colour": 1}, "'?\"colour\"'?; it must be one of those that are known"),
        ({"name": 7}, "name is 7; it must be a string of 1 to 10 characters"),
        ({"name": ""}, "it must be a string"),
        ({"name": "x" * 11}, "it must be a string"),
        ({"name": "a\nb"}, "cannot be printed"),
        ({"name": "x", "size": 0}, "size is 0; it must be a number above 0 to 100"),
        ({"name": "x", "size": 101}, "size is 101"),
        ({"name": "x", "size": True}, "size is true"),
        ({"name": "x", "size": "1"}, "size is"),
        ({"name": "x", "count": 1.5}, "count is 1.5; it must be a whole number from 0 to 9"),
        ({"name": "x", "count": 10}, "count is 10"),
        ({"name": "x", "count": False}, "count is false"),
        ({"name": "x", "big": 1}, "big is 1; it must be true or false"),
        ({"name": "x", "mode": "c"}, "must be one of a, b"),
        ({"name": "x", "mode": ["a"]}, "must be one of a, b"),
        ({"name": "x", "keys": "k"}, "must be a list of at most 2"),
        ({"name": "x", "keys": ["a", "b", "c"]}, "must be a list of at most 2"),
        ({"name": "x", "at": "../x"}, "matches"),
        ({"name": "x", "at": "abc\n"}, "matches"),
        ({"name": "x" * 100}, "…; it must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(wrong, says):
    with pytest.raises(SettingsError, match=says):
        THING.read(wrong)


def test_a_key_is_refused_as_everywhere():
    with pytest.raises(InvalidKey, match="is empty"):
        THING.read({"name": "x", "keys": [""]})
    assert Key(empty=True).read("", "prefix") == ""


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("name=x&count=abc", "count is"),
        ("name=x&count=99999999999999999999", "count is"),
        ("name=x&size=nan", "size is"),
        ("name=x&size=much", "size is"),
        ("name=x&name=y", "twice"),
        ("name=x&colour=red", "known"),
    ],
)
def test_a_query_is_read_as_strictly(query, says):
    with pytest.raises(SettingsError, match=says):
        THING.read_query(query)
    assert THING.read_query("name=x%20y&size=2.5&count=7")["name"] == "x y"


def test_a_query_that_says_nothing_is_read_as_well():
    assert Fields({"count": Field(Whole(), 3)}).read_query("") == {"count": 3}
    with pytest.raises(SettingsError, match="has no name"):
        THING.read_query("")


@pytest.mark.parametrize("query", ["name", "%ff", "name=%ff", "&&"])
def test_a_query_that_is_none_is_a_bad_request(query):
    with pytest.raises(RequestRefused) as caught:
        THING.read_query(query)
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"ttl": NaN}', b'{"ttl": Infinity}', b"[" * 100_000])
def test_a_body_that_is_no_json_is_a_bad_request(body):
    with pytest.raises(RequestRefused) as caught:
        read_json(body)
    assert caught.value.status == 400


def test_the_schema_says_what_is_read():
    schema = THING.schema()
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["size"] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 100,
        "default": 1.0,
    }
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("text", ["null", "0", '"é"', "[1, 2]", '{"a": [null]}', " 1 ", '"' + "x" * 98 + '"'])
def test_json_as_text_stays_as_it_is(text):
    assert JsonText(100).read(text, "data") == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "nope", "{", "NaN", "-Infinity", "1 2", '"\n"', '"\0"', "'a'", "\ud800", '"\ud800"', "[" * 90),
        *("x" * 101, '"' + "é" * 50 + '"', "1" * 5000, 7, None, {"a": 1}, ["a"]),
    ],
    ids=repr,
)
def test_what_is_no_json_or_too_large_is_refused(text):
    with pytest.raises(SettingsError, match="it must be JSON as text"):
        JsonText(100).read(text, "data")


@pytest.mark.parametrize(
    ("shape", "longest"),
    [(Key(), 255), (WorkType(), 254), (JsonText(100), 100), (Text(7, multiline=True), 7)],
)
def test_texts_are_described_with_their_length(shape, longest):
    described = shape.schema()
    assert (described["type"], described["maxLength"]) == ("string", longest)


def test_json_that_is_nested_without_end_is_refused():
    with pytest.raises(SettingsError, match="JSON as text"):
        JsonText(10**6).read("[" * 200_000 + "]" * 200_000, "data")


def test_a_type_is_what_keys_begin_with():
    shape = WorkType()
    for type in ("", "job", "a/b", "ünicode", "x" * 254):
        assert shape.read(type, "types") == type
    for wrong in ("a:b", ":", "x" * 255):
        with pytest.raises(SettingsError, match="before their first colon"):
            shape.read(wrong, "types")
    with pytest.raises(InvalidKey):
        shape.read("a\nb", "types")


@pytest.mark.parametrize("shape", [Key(), Key(empty=True), WorkType()])
@pytest.mark.parametrize("wrong", [7, None, True, [], {}, ["a"]])
def test_keys_and_types_are_strings(shape, wrong):
    """Whatever else it is does not become a part of the answer."""
    with pytest.raises(SettingsError, match=r"name is .*; it must be a string"):
        shape.read(wrong, "name")


def test_text_of_several_lines_has_no_nul():
    shape = Text(100, 0, multiline=True)
    assert shape.read("a\n\tb\x1b", "text") == "a\n\tb\x1b"
    for wrong in ("a\0b", "\ud800"):
        with pytest.raises(SettingsError, match="UTF-8"):
            shape.read(wrong, "text")


@pytest.mark.parametrize("body", [b'{"a": 1}', b' {"a": 1}', b'{"a": 1}\n', b'\t{"a":1} '])
def test_json_may_have_spaces_around_it(body):
    assert read_json(body) == {"a": 1}
