"""Which node of a Galera cluster may be used: the decision by itself. `tests/faults` has real nodes."""

from __future__ import annotations

import pytest

from holdfast.stores.mysql.galera import FRESH, LEASE, VALID, OtherNode, Sight, may_use
from holdfast.stores.mysql.store import MySQLStore


def sight(used: str = "a", *, size: int = 3, age: float = 0.5, held: bool = False) -> Sight:
    return Sight("b", "node-b", size, used, "node-a", 1, age, held)


@pytest.mark.parametrize(
    ("seen", "is_member", "allowed"),
    [
        (sight(""), None, True),  # nobody has used any yet
        (sight("b"), True, True),  # it is this one
        (sight(), True, False),
        (sight(), None, False),
        (sight(size=1), None, True),  # the other one is gone
        (sight(), False, True),
        (sight(held=True), False, True),  # leases go on at the next node
        (sight(age=LEASE + 1), True, True),  # nobody uses the other one any more
        (sight(age=LEASE + 1, held=True), True, False),  # but somebody believes in a lease there
        (sight(age=LEASE + 1, held=True), None, False),
        (sight(age=LEASE - 1), None, False),
    ],
)
def test_a_node_may_be_used_if_no_other_one_is(seen: Sight, is_member: bool | None, allowed: bool) -> None:
    assert may_use(seen, is_member=is_member) == allowed


def test_who_has_looked_is_done_long_before_another_node_may_be_used() -> None:
    """A connection is good for a while, and one statement may be under way when that ends."""
    assert FRESH + VALID < LEASE / 2


def test_a_refusal_names_both_nodes() -> None:
    said = str(OtherNode(sight()))
    assert "node-a" in said
    assert "node-b" in said


def test_a_server_that_is_in_no_cluster_is_not_looked_at_again(mysql_store: MySQLStore) -> None:
    assert mysql_store.source.node == ""
    session = mysql_store.source.new_session()
    assert session.valid_until == float("inf")
    session.close()
