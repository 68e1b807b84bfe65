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
    "abandoning",
    "acquiring",
    "addressing",
    "admitting",
    "asking",
    "asking_cluster",
    "assigning",
    "being",
    "breaking",
    "calling",
    "claiming",
    "contending",
    "deadlocking",
    "delaying",
    "downgrading",
    "fencing",
    "finishing",
    "grouping",
    "handing_over",
    "holding",
    "joining",
    "keeping_promises",
    "keeping_results",
    "keeping_work",
    "looking",
    "mixing",
    "naming",
    "offering",
    "operating",
    "permitting",
    "queueing",
    "racing",
    "releasing",
    "remembering",
    "renewing",
    "sharing",
    "signalling",
    "spreading",
    "staying",
    "surveying",
    "sweeping",
    "watching",
    "withdrawing",
)
# Failed asserts in these modules then explain themselves as those in test files do.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

# ruff: noqa: E402 - after the line above, or it would come too late
from holdfast.stores.base import Store
from holdfast.testing.conformance.abandoning import Abandoning
from holdfast.testing.conformance.acquiring import Acquiring
from holdfast.testing.conformance.addressing import Addressing
from holdfast.testing.conformance.admitting import Admitting
from holdfast.testing.conformance.asking import (
    CLIENT,
    OTHER_CLIENT,
    Asker,
    AsyncAdapter,
    MakeStore,
)
from holdfast.testing.conformance.assigning import Assigning
from holdfast.testing.conformance.being import Being
from holdfast.testing.conformance.breaking import Breaking
from holdfast.testing.conformance.calling import Calling
from holdfast.testing.conformance.claiming import Claiming
from holdfast.testing.conformance.contending import Contending
from holdfast.testing.conformance.deadlocking import Deadlocking
from holdfast.testing.conformance.delaying import Delaying
from holdfast.testing.conformance.downgrading import Downgrading
from holdfast.testing.conformance.fencing import Connect, Fencing
from holdfast.testing.conformance.finishing import Finishing
from holdfast.testing.conformance.grouping import Grouping
from holdfast.testing.conformance.handing_over import HandingOver
from holdfast.testing.conformance.holding import Holding
from holdfast.testing.conformance.joining import Joining
from holdfast.testing.conformance.keeping_promises import KeepingPromises
from holdfast.testing.conformance.keeping_results import KeepingResults
from holdfast.testing.conformance.keeping_work import KeepingWork
from holdfast.testing.conformance.looking import Looking
from holdfast.testing.conformance.mixing import Mixing
from holdfast.testing.conformance.naming import Naming
from holdfast.testing.conformance.offering import Offering
from holdfast.testing.conformance.operating import Failing, Operating
from holdfast.testing.conformance.permitting import Permitting, Resizing
from holdfast.testing.conformance.queueing import Queueing
from holdfast.testing.conformance.racing import Racing
from holdfast.testing.conformance.releasing import Releasing
from holdfast.testing.conformance.remembering import Remembering
from holdfast.testing.conformance.renewing import Renewing
from holdfast.testing.conformance.sharing import Sharing
from holdfast.testing.conformance.signalling import Signalling
from holdfast.testing.conformance.spreading import Spreading
from holdfast.testing.conformance.staying import Staying
from holdfast.testing.conformance.surveying import Surveying
from holdfast.testing.conformance.sweeping import Sweeping
from holdfast.testing.conformance.watching import Watching
from holdfast.testing.conformance.withdrawing import Withdrawing

__all__ = [
    "CLIENT",
    "OTHER_CLIENT",
    "Asker",
    "AsyncAdapter",
    "MakeStore",
    "StoreConformance",
]


class StoreConformance(
    Acquiring,
    Holding,
    Releasing,
    Renewing,
    Queueing,
    HandingOver,
    Withdrawing,
    Breaking,
    Sharing,
    Downgrading,
    Permitting,
    Resizing,
    Operating,
    Failing,
    KeepingResults,
    Delaying,
    Staying,
    Deadlocking,
    Mixing,
    Fencing,
    Looking,
    Remembering,
    Watching,
    Sweeping,
    Naming,
    Signalling,
    Addressing,
    Admitting,
    Joining,
    Offering,
    Claiming,
    Spreading,
    Assigning,
    Finishing,
    Abandoning,
    Contending,
    Surveying,
    Calling,
    Racing,
    Grouping,
    Being,
    KeepingPromises,
    KeepingWork,
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
