"""The classes of values: what they promise, and that type checkers and programs see the same."""

import copy
import pickle

import pytest

from holdfast.core.data import as_dict, data, replace
from holdfast.core.requests import Busy, Granted, Holder, NotHeld, Released


@data
class Point:
    """A point."""

    x: int
    y: int = 2

    def sum(self) -> int:
        return self.x + self.y


@data
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError(self.value)


@data
class Empty:
    flag: bool = False


def test_fields_come_in_order_with_their_defaults():
    assert (Point(1).x, Point(1).y, Point(1, 3).y, Point(y=5, x=4).sum()) == (1, 2, 3, 9)
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]


def test_values_are_equal_when_class_and_fields_are():
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Released(0, None) != (0, None)
    assert Granted(1, 2.0, 3) != NotHeld("already")
    assert Point(1).__eq__(object()) is NotImplemented


def test_values_can_be_kept_in_sets():
    assert len({Point(1), Point(1, 2), Point(2)}) == 2


def test_values_show_themselves():
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert Point.__doc__ == "A point."


def test_there_is_no_room_for_anything_else():
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]


def test_a_value_can_check_itself():
    with pytest.raises(ValueError, match="-1"):
        Positive(-1)
    with pytest.raises(ValueError, match="0"):
        replace(Positive(1), value=0)


def test_replacing_leaves_the_rest_and_the_original():
    point = Point(1, 3)
    assert replace(point, x=7) == Point(7, 3)
    assert point == Point(1, 3)
    with pytest.raises(TypeError):
        replace(point, z=1)


def test_values_travel():
    holder = Holder("owner", "host", 1, 2, 3.0)
    assert pickle.loads(pickle.dumps(holder)) == holder
    assert copy.deepcopy(holder) == holder


def test_values_become_dictionaries_all_the_way_down():
    holder = Holder("owner", "host", 1, 2, 3.0)
    assert as_dict((Busy(holder, 1.5), None)) == [
        {
            "holder": {
                "owner": "owner",
                "host": "host",
                "pid": 1,
                "token": 2,
                "held_for": 3.0,
                "claimed": True,
                "take": 1,
                "gone": False,
            },
            "expires_in": 1.5,
        },
        None,
    ]


def test_values_can_be_matched_by_position():
    match Point(1):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_one_field_is_enough():
    assert Empty() == Empty(flag=False)
    assert hash(Empty()) == hash(Empty())


def test_what_is_no_data_of_ours_stays_as_it_is():
    """A dictionary for example: it is ready for JSON already."""
    given = {"a": 1}
    assert as_dict(given) is given
