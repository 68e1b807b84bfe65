"""The definition of a store, as tests.

A third-party store runs it like this:

    from holdfast.testing.conformance import CLIENT, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            opened = []

            def make_store(client=CLIENT, history="notable"):
                store = MyStore(tmp_path / "locks", StoreOptions(client, history))
                store.open()
                opened.append(store)
                return store

            yield make_store
            for store in opened:
                store.close()

All stores of one test must see the same locks, and each test must start with none. Wrap the store in
`AsyncAdapter` to put the same questions through an event loop. Every request carries its time, so
nothing here waits. The subjects are mixins of their own, for a suite that is split over files.
"""

from __future__ import annotations

import pytest

_MODULES = (
    "abandoned_work",
    "access_tokens",
    "addresses",
    "asker",
    "assignments",
    "batches",
    "calls",
    "claims",
    "cluster_asker",
    "cluster_invariants",
    "deadlocks",
    "entering",
    "feed",
    "fences",
    "finished_work",
    "grants",
    "handovers",
    "history",
    "instances",
    "invariants",
    "kept_results",
    "mixed_terms",
    "names",
    "offers",
    "operations",
    "queue",
    "races",
    "reentry",
    "releases",
    "renewals",
    "semaphores",
    "shared_leases",
    "shut_locks",
    "signals",
    "sweeps",
    "traits",
    "views",
    "watching",
    "work_and_locks",
    "work_choice",
    "work_views",
)
# Failed asserts in these modules then explain themselves as those in test files do.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

# ruff: noqa: E402 - after the line above, or it would come too late
from holdfast.stores.base import Store
from holdfast.testing.conformance.abandoned_work import AbandonedWork
from holdfast.testing.conformance.access_tokens import AccessTokens
from holdfast.testing.conformance.addresses import Addresses
from holdfast.testing.conformance.asker import (
    CLIENT,
    OTHER_CLIENT,
    Asker,
    AsyncAdapter,
    MakeStore,
)
from holdfast.testing.conformance.assignments import Assignments
from holdfast.testing.conformance.batches import Batches
from holdfast.testing.conformance.calls import Calls
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.cluster_invariants import ClusterInvariants
from holdfast.testing.conformance.deadlocks import Deadlocks
from holdfast.testing.conformance.entering import Entering
from holdfast.testing.conformance.feed import Feed
from holdfast.testing.conformance.fences import Connect, Fences
from holdfast.testing.conformance.finished_work import FinishedWork
from holdfast.testing.conformance.grants import Grants
from holdfast.testing.conformance.handovers import Handovers
from holdfast.testing.conformance.history import KeptHistory
from holdfast.testing.conformance.instances import Instances
from holdfast.testing.conformance.invariants import Invariants
from holdfast.testing.conformance.kept_results import KeptResults
from holdfast.testing.conformance.mixed_terms import MixedTerms
from holdfast.testing.conformance.names import Names
from holdfast.testing.conformance.offers import Offers
from holdfast.testing.conformance.operations import FailedOperations, Operations
from holdfast.testing.conformance.queue import Queue
from holdfast.testing.conformance.races import Races
from holdfast.testing.conformance.reentry import Reentry
from holdfast.testing.conformance.releases import Breaks, Releases, Withdrawals
from holdfast.testing.conformance.renewals import Renewals
from holdfast.testing.conformance.semaphores import ResizedSemaphores, Semaphores
from holdfast.testing.conformance.shared_leases import Downgrades, SharedLeases
from holdfast.testing.conformance.shut_locks import AtLeast, LockDelays
from holdfast.testing.conformance.signals import Signals
from holdfast.testing.conformance.sweeps import Sweeps
from holdfast.testing.conformance.traits import TraitsAndClients
from holdfast.testing.conformance.views import Views
from holdfast.testing.conformance.watching import Watching
from holdfast.testing.conformance.work_and_locks import WorkAndLocks
from holdfast.testing.conformance.work_choice import WorkChoice
from holdfast.testing.conformance.work_views import WorkViews

__all__ = [
    "CLIENT",
    "OTHER_CLIENT",
    "Asker",
    "AsyncAdapter",
    "MakeStore",
    "StoreConformance",
]


class StoreConformance(
    Grants,
    Reentry,
    Releases,
    Renewals,
    Queue,
    Handovers,
    Entering,
    Withdrawals,
    Breaks,
    SharedLeases,
    Downgrades,
    Semaphores,
    ResizedSemaphores,
    Operations,
    FailedOperations,
    KeptResults,
    LockDelays,
    AtLeast,
    Deadlocks,
    MixedTerms,
    Fences,
    Views,
    KeptHistory,
    Feed,
    Watching,
    Sweeps,
    Names,
    Signals,
    Addresses,
    AccessTokens,
    Instances,
    Offers,
    Claims,
    WorkChoice,
    Assignments,
    FinishedWork,
    AbandonedWork,
    WorkAndLocks,
    WorkViews,
    Calls,
    Races,
    Batches,
    TraitsAndClients,
    Invariants,
    ClusterInvariants,
):
    """The whole suite. Override `make_store`."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Return a function that opens a client's store. To be overridden."""
        raise NotImplementedError("override make_store: a function (client, history) -> opened Store")

    @pytest.fixture
    def connect(self) -> Connect:
        """Return a function that opens a driver's connection to the store's database, autocommit off.

        To be overridden, but for a store without transactions.
        """
        return None

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Store:
        """Return the store of the client that most tests ask through."""
        return make_store()

    @pytest.fixture
    def ask(self, store: Store) -> Asker:
        """Return a short way to ask that store."""
        return Asker(store)
