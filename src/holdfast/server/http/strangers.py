"""Connections on which nobody has been let in yet: who they are, and which of them makes room.

Whoever has a valid access token must get in, however many others have none. So nobody is refused for want of
room while there is a stranger: the oldest goes. A caller is one until its first request was read. Whoever
wants to hold all connections without being let in is one for good, however busy it keeps itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Protocol


class Guest(Protocol):
    """What a door knows of a connection."""

    remote: str

    @property
    def is_first(self) -> bool: ...  # its first request is being handled
    def make_room(self) -> None: ...
    def drain(self) -> None: ...
    def abort(self) -> None: ...


class Strangers:
    """All strangers, and those of each address, in the order in which they came."""

    def __init__(self) -> None:
        self._all: dict[Guest, str] = {}
        self._of: dict[str, dict[Guest, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, who: Guest, remote: str) -> None:
        """Keep *who*, as the youngest."""
        address = self._all[who] = neighbourhood(remote)
        self._of.setdefault(address, {})[who] = None

    def drop(self, who: Guest) -> None:
        """Keep *who* no more: it was let in, or has left."""
        address = self._all.pop(who, None)
        if address is not None:
            of_address = self._of[address]
            del of_address[who]
            if not of_address:
                del self._of[address]

    def count(self, remote: str) -> int:
        """Return how many there are of an address."""
        return len(self._of.get(neighbourhood(remote), ()))

    def oldest(self, remote: str | None = None) -> Guest | None:
        """Return who makes room: of *remote*'s address, or of all."""
        strangers: Collection[Guest] = self._all
        if remote is not None:
            strangers = self._of.get(neighbourhood(remote), {})
        # Whose first request is being answered is spared: it may be the probe of a balancer, which would take
        # the server away. But only for somebody else of the older half: first requests can be slow as well (a
        # write that hangs, a token that nobody knows), and then only who has just come would have to go.
        older = islice(strangers, len(strangers) // 2 + 1)
        return next((each for each in older if not each.is_first), None) or next(iter(strangers), None)


@lru_cache(maxsize=1024)
def neighbourhood(remote: str) -> str:
    """Return the address, or of the sixth version its network: whoever has one has all of them."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote[:64]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)
