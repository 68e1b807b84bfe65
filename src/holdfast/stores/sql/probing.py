"""Whether a write works: one row is written that means nothing to anybody."""

from __future__ import annotations

from holdfast.core.requests import Client, Health, Probe
from holdfast.stores.base import instant
from holdfast.stores.sql.run import Fetch

KEY = ""  # no lock has it


def probe(fetch: Fetch, client: Client, request: Probe) -> Health:
    """Note that an attempt of ours, which was at no lock, has ended just now. The next sweep forgets it.

    A row in a table that grants are written to as well, and another one than the last time: to write what is
    there already is no write to some databases. Each client has its own, so that none waits for another.
    """
    ((now,),) = fetch("now", now=instant(request.now))
    ended = {"why": "withdrawn", "by": None, "reason": None, "until_at": now}
    fetch("write_ended", key=KEY, attempt=client.instance, **ended)
    return Health()
