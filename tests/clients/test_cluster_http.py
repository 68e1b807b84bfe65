"""Instances, work and elections through a lock server: signals come by its stream, all else is the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from holdfast.server import ServerSettings
from holdfast.testing.server import ServerThread
from tests.clients.test_cluster import (
    test_an_instance_joins_and_leaves,
    test_closing_a_client_leaves_and_returns_the_work,
    test_draining_ends_the_loops_and_waits_for_what_is_being_done,
    test_its_peers_declare_it_dead_and_it_learns_of_it,
    test_who_misses_its_heartbeats_is_lost_and_its_work_with_it,
)
from tests.clients.test_cluster_work import (
    test_a_loop_is_given_work_as_it_comes,
    test_loops_of_different_types_are_all_given_work_as_it_comes,
    test_lost_work_is_told_to_who_is_at_it_and_offered_again_at_once,
    test_many_claim_at_once_and_nothing_is_claimed_twice,
    test_much_is_offered_in_parts,
    test_work_is_assigned_with_its_lock,
    test_work_is_completed_with_a_result,
    test_work_that_fails_is_tried_again_or_not,
)
from tests.clients.test_electing import (
    diary,
    test_callbacks_are_called_while_it_campaigns_by_itself,
    test_stopping_an_election_ends_its_loop,
)

# What is tried here once more; the fixture is one that they share.
__all__ = [
    "diary",
    "test_a_loop_is_given_work_as_it_comes",
    "test_an_instance_joins_and_leaves",
    "test_callbacks_are_called_while_it_campaigns_by_itself",
    "test_closing_a_client_leaves_and_returns_the_work",
    "test_draining_ends_the_loops_and_waits_for_what_is_being_done",
    "test_its_peers_declare_it_dead_and_it_learns_of_it",
    "test_loops_of_different_types_are_all_given_work_as_it_comes",
    "test_lost_work_is_told_to_who_is_at_it_and_offered_again_at_once",
    "test_many_claim_at_once_and_nothing_is_claimed_twice",
    "test_much_is_offered_in_parts",
    "test_stopping_an_election_ends_its_loop",
    "test_who_misses_its_heartbeats_is_lost_and_its_work_with_it",
    "test_work_is_assigned_with_its_lock",
    "test_work_is_completed_with_a_result",
    "test_work_that_fails_is_tried_again_or_not",
]

_names = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server of its own."""
    settings = ServerSettings(
        url=f"memory://http-cluster-{next(_names)}",
        port=0,
        insecure_no_authentication=True,
        log_level="error",
    )
    with ServerThread(settings) as serving:
        yield serving.server.url
