"""Stores behind a lock server: a real one, in a thread, over the store that a test has to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.core.data import replace
from holdfast.core.requests import Client
from holdfast.errors import SettingsError
from holdfast.server import Limits, ServerSettings
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.testing.conformance import CLIENT, Asker, MakeStore, StoreConformance
from holdfast.testing.conformance.access_tokens import WANTED
from holdfast.testing.conformance.addresses import Addresses
from holdfast.testing.conformance.calls import Calls
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.handovers import Handovers
from holdfast.testing.conformance.operations import Operations
from holdfast.testing.conformance.signals import Signals
from holdfast.testing.conformance.traits import TraitsAndClients
from holdfast.testing.server import ServerThread, settled


class ServedConformance(StoreConformance):
    """The suite, as far as a server is not stricter than its store."""

    def test_names_and_many_long_rights_are_kept_as_they_are(self, ask: Asker) -> None:
        """The name of a principal becomes a part of its owners' names, so not everything will do."""
        rights = tuple(f"acquire:{'锁' * 250}{number}:*" for number in range(100))
        with pytest.raises(SettingsError, match="name"):
            ask.store.execute(replace(WANTED, name="Zoë's laptop 💻", rights=rights))
        kept = ask.store.execute(replace(WANTED, name="zoe@laptop", rights=rights))
        assert (kept.name, kept.rights) == ("zoe@laptop", rights)
        assert self._listed(ask, now=101.0) == [kept]


class ServedByADatabase(Handovers, Operations, Claims, Signals, Addresses, Calls, TraitsAndClients):
    """What of the suite has to do with how a server and a database tell each other and their clients.

    All of it is put to servers over memory and SQLite, and to each database directly.
    """

    connect = StoreConformance.connect
    store = StoreConformance.store
    ask = StoreConformance.ask


def settings(url: str, history="notable") -> ServerSettings:
    """Return the settings of a server that believes what time it is told."""
    limits = Limits(shortest_ttl=1e-6)  # the suite goes further than any user should
    return ServerSettings(
        url=url,
        port=0,
        accept_times=True,
        insecure_no_authentication=True,  # also once there are access tokens
        log_level="error",
        history=history,
        limits=limits,
    )


def stores_behind(url: str, wrap: Callable[[Store], Store]) -> Iterator[MakeStore]:
    """Yield a function that opens HTTP stores of a server over *url*; close them and it in the end."""
    opened: list[Store] = []
    with ServerThread(settings(url)) as serving:

        def make_store(client: Client = CLIENT, history="notable") -> Store:
            store = settled(open_store(serving.server.url, StoreOptions(client, history)))
            store = wrap(store)
            store.open()
            opened.append(store)
            return store

        yield make_store
        for store in opened:
            store.close()
