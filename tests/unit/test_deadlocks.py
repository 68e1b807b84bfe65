"""Who waits for whom, and whether that is a circle. Nobody is accused who could be served one day."""

from holdfast.core.data import as_dict, replace
from holdfast.core.deadlocks import Held, KeyState, Waiting, find
from holdfast.core.family import PLAIN, Link, Terms

SHARED = Terms(mode="shared")


def permits(take: int = 1) -> Terms:
    return Terms(mode="permits", take=take)


class World:
    """Keys, each with those who hold it and those who wait, as (owner, terms) or just owners."""

    def __init__(self, permits: int = 0, **keys):
        self.keys = {}
        self.looks = 0
        self.clock = 0
        for key, (holds, tickets) in keys.items():
            self.keys[key] = KeyState(
                tuple(Held(owner, f"{owner}:{key}", terms) for owner, terms in map(_pair, holds)),
                tuple(self._wait(key, *_pair(each)) for each in tickets),
                permits,
            )

    def _wait(self, key, owner, terms):
        self.clock += 1  # each came later than the one before
        return Waiting(owner, f"{owner}>{key}", terms, self.clock, "alpha", 101)

    def is_waited_for(self, owner):
        return any(
            state.tickets and any(hold.owner == owner for hold in state.holds) for state in self.keys.values()
        )

    def keys_wanted_by(self, owners):
        wanted = [
            key for key, state in self.keys.items() if any(ticket.owner in owners for ticket in state.tickets)
        ]
        return wanted * 2  # to name one twice is no harm

    def states(self, keys):
        self.looks += 1
        return {key: self.keys[key] for key in keys}

    def circle(self, owner):
        """Return who waits for which key, the victim first."""
        found = find(owner, self)
        return found and [(link.owner, link.key) for link in found.cycle]


def _pair(each):
    return each if isinstance(each, tuple) else (each, PLAIN)


def test_two_who_have_what_the_other_wants_are_a_circle():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]))
    assert world.circle("ann") == world.circle("bob") == [("ann", "k2"), ("bob", "k1")]


def test_the_newest_is_the_victim():
    world = World(k2=(["bob"], ["ann"]), k1=(["ann"], ["bob"]))
    assert world.circle("ann") == [("bob", "k1"), ("ann", "k2")]


def test_of_two_that_came_at_once_the_attempt_decides():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]))
    for key, state in world.keys.items():
        world.keys[key] = replace(
            state, tickets=tuple(replace(ticket, queued_at=5) for ticket in state.tickets)
        )
    assert world.circle("ann") == [("bob", "k1"), ("ann", "k2")]


def test_a_circle_can_have_many():
    world = World(k1=(["a"], ["d"]), k2=(["b"], ["a"]), k3=(["c"], ["b"]), k4=(["d"], ["c"]))
    assert world.circle("b") == [("c", "k4"), ("d", "k1"), ("a", "k2"), ("b", "k3")]


def test_a_circle_says_all_about_its_links():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]))
    found = find("ann", world)
    assert found.cycle == (Link("ann", "k2", "alpha", 101), Link("bob", "k1", "alpha", 101))
    assert found.evidence == {("k1", "ann:k1"), ("k1", "bob>k1"), ("k2", "bob:k2"), ("k2", "ann>k2")}


def test_only_the_store_learns_whose_attempt_has_to_go():
    """Whoever knows an attempt can release what it holds. So the links, which others are told, have none."""
    found = find("ann", World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"])))
    assert found.victim == ("k2", "ann>k2")
    assert "ann>k2" not in str(as_dict(found.cycle))


def test_nobody_looks_far_for_who_has_nothing_that_is_waited_for():
    world = World(k1=(["ann"], ["bob"]), k2=(["cy"], ["dee"]))
    assert world.circle("bob") is None
    assert world.looks == 0


def test_a_line_is_no_circle():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["cy"]), k3=(["cy"], ["dee"]))
    assert world.circle("cy") is None


def test_waits_that_meet_at_one_who_goes_on_are_no_circle():
    world = World(k1=(["ann"], ["bob", "cy"]), k2=(["bob"], ["cy"]), k3=(["cy"], ["dee"]))
    assert world.circle("cy") is None


def test_who_waits_for_a_circle_and_is_not_in_it_is_not_the_victim():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann", "cy"]), k3=(["cy"], ["dee"]))
    assert world.circle("cy") == [("ann", "k2"), ("bob", "k1")]


def test_what_was_there_only_once_is_no_circle():
    """Each key was looked at a moment later than the one before."""
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]))
    look = world.states

    def once(keys):
        found = look(keys)
        world.keys["k1"] = KeyState((), world.keys["k1"].tickets)  # ann has released it
        return found

    world.states = once
    assert world.circle("bob") is None


def test_a_circle_of_other_attempts_is_another():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]))
    look = world.states

    def later(keys):
        found = look(keys)
        if world.looks == 4:
            return {
                key: replace(
                    state, tickets=tuple(replace(t, attempt=f"{t.attempt}-2") for t in state.tickets)
                )
                for key, state in found.items()
            }
        return found

    world.states = later
    assert world.circle("bob") is None


def test_readers_do_not_wait_for_readers():
    world = World(k1=([("ann", SHARED), ("bob", SHARED)], [("cy", SHARED)]), k2=(["cy"], ["ann"]))
    assert world.circle("ann") is None


def test_a_writer_waits_for_every_reader():
    world = World(k1=([("ann", SHARED), ("bob", SHARED)], ["cy"]), k2=(["cy"], ["bob"]))
    assert world.circle("bob") == [("bob", "k2"), ("cy", "k1")]


def test_a_reader_waits_for_the_writer_before_it():
    """Ann reads k1, which cy wants to write; bob wants to read it behind cy, and has what ann wants."""
    world = World(
        k1=([("ann", SHARED)], ["cy", ("bob", SHARED)]), k2=(["bob"], ["ann"]), k3=(["cy"], ["bob"])
    )
    assert world.circle("ann") == [("ann", "k2"), ("bob", "k1"), ("cy", "k1")]


def test_a_reader_waits_for_what_keeps_the_writer_before_it_waiting():
    """Cy gets what it wants elsewhere, so it is not stuck; but its ticket before bob's is."""
    world = World(
        k1=([("ann", SHARED)], ["cy", ("bob", SHARED)]), k2=(["bob"], ["ann"]), k3=(["dee"], ["cy"])
    )
    assert world.circle("ann") == [("ann", "k2"), ("bob", "k1")]


def test_to_enter_again_is_not_to_wait():
    world = World(k1=(["ann"], ["ann", "bob"]), k2=(["bob"], ["ann"]))
    assert world.circle("ann") == [("ann", "k2"), ("bob", "k1")]
    world = World(k1=(["ann"], ["ann", ("ann", SHARED)]), k2=(["ann"], ["bob"]))
    assert world.circle("ann") is None
    world = World(k1=([("ann", SHARED)], ["bob", ("ann", SHARED)]))
    assert world.circle("ann") is None


def test_permits_are_waited_for_only_if_there_are_too_few():
    keys = {"k1": ([("ann", permits()), ("cy", permits())], [("bob", permits(2))]), "k2": (["bob"], ["ann"])}
    assert World(permits=3, **keys).circle("ann") is None  # cy gives its own back
    assert World(permits=2, **keys).circle("ann") == [("ann", "k2"), ("bob", "k1")]


def test_one_can_be_in_its_own_way():
    world = World(permits=3, k1=([("ann", permits(2))], [("ann", permits(2))]))
    assert world.circle("ann") == [("ann", "k1")]


def test_one_can_be_in_its_own_way_by_way_of_who_is_before_it():
    """A permit is left for ann, but it is behind bob, who waits for all of ann's; bob goes on elsewhere."""
    world = World(
        permits=3,
        k1=([("ann", permits(2))], [("bob", permits(3)), ("ann", permits())]),
        k2=(["cy"], ["bob"]),
    )
    assert world.circle("ann") == [("ann", "k1")]


def test_who_would_fit_beside_its_own_waits_for_the_others():
    world = World(
        permits=4,
        k1=([("ann", permits(2)), ("bob", permits())], [("ann", permits(2))]),
        k2=(["ann"], ["bob"]),
    )
    assert world.circle("ann") == [("bob", "k2"), ("ann", "k1")]


def test_who_can_be_served_anywhere_is_taken_to_go_on():
    world = World(k1=(["ann"], ["bob"]), k2=(["bob"], ["ann"]), k3=(["cy"], ["ann"]))
    assert world.circle("bob") is None
