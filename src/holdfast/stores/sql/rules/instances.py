"""Who has joined, who is still there, and who has died. See Cluster in the protocol."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.events import EventKind
from holdfast.stores.base import instant, micros
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.deal import Deal, PendingAnswer
from holdfast.stores.sql.rules.runner import Deals, Fetch, Soon

MOST_DECLARED = 100
LIVING = ("alive", "draining")


class InstanceRow:
    """An instance inside a transaction that has its row; or that there is none."""

    expires_at: int
    beat_at: int
    address: str
    host: str
    pid: int
    claims: int
    asked_at: int
    wants: str | None
    assigned: int  # how much work it has

    def __init__(self, rows: list[Row]) -> None:
        ((now, state, name, capacity, *rest),) = rows
        self.now: int = now
        self.there = state is not None
        self.state: c.InstanceState = state or "dead"
        self.name: str = name or ""
        self.capacity: int = capacity or 0
        for column, value in zip(COLUMNS, rest, strict=True):
            setattr(self, column, value)

    def seen(self) -> c.InstanceState:
        """Return the state it is in, whether or not anybody has declared it."""
        return seen_at(self.state, self.expires_at, self.now) if self.there else "dead"

    def write(self, run: Deals, id: str) -> None:
        """Write it back."""
        values = {column: getattr(self, column) for column in COLUMNS if column != "assigned"}
        run.later("write_instance", id=id, state=self.state, load=self.assigned, **values)

    def beat(self) -> PendingAnswer:
        """Return what it is told of itself. How many are alive is counted after the commit."""
        state = self.seen()
        expires_in = (self.expires_at - self.now) / 1e6 if state in LIVING else 0.0
        return PendingAnswer(
            ("count_living", {"now": self.now}),
            lambda rows: c.Beat(state, expires_in, rows[0][0], self.now / 1e6),
        )


COLUMNS = tuple(InstanceRow.__annotations__)


def find_instance(run: Deals, id: str, given: int | None) -> Soon:
    """Lock the row of an instance, and read it: what it had to wait for is seen by the read."""
    run.later("lock_instance", id=id)
    return run.soon("read_instance", id=id, now=given)


def join(deal: Deal, request: c.Join) -> PendingAnswer:
    """Make an instance; if it is there already, this is a heartbeat."""
    client = request.client
    about = {"name": request.name, "version": request.version, "capacity": request.capacity}
    place = {"host": client.host, "pid": client.pid, "address": client.instance, "ttl": micros(request.ttl)}
    made = deal.run.soon("insert_instance", id=request.id, now=deal.given, **about, **place)
    deal.run.later("lock_instance", id=request.id)
    who = InstanceRow(deal.run("read_instance", id=request.id, now=deal.given))
    if not made.rows:  # its answer was lost
        return heartbeat(deal, c.Heartbeat(request.id, client, request.ttl))
    _note(deal, request.id, who, "joined")
    return who.beat()


def heartbeat(deal: Deal, request: c.Heartbeat) -> PendingAnswer:
    """Move the end of an instance, and declare dead whose end has come."""
    id, client = request.id, request.client
    found = find_instance(deal.run, id, deal.given)
    others = deal.run("dead_instances", id=id, now=deal.given, limit=MOST_DECLARED)
    who = InstanceRow(found.rows)
    for other, name in others:
        deal.run.later("declare_dead", id=other)
        deal.note(c.instance_key(other), "died", who.now, name)
    if who.seen() in LIVING:
        who.expires_at = max(who.expires_at, who.now + micros(request.ttl))
        who.beat_at = who.now
        who.address, who.host, who.pid = client.instance, client.host, client.pid
        if request.drain and who.state == "alive":
            who.state = "draining"
            _note(deal, id, who, "draining")
        who.write(deal.run, id)
    elif who.state in LIVING:
        deal.run.later("declare_dead", id=id)
        _note(deal, id, who, "died")
    return who.beat()


def leave(deal: Deal, id: str) -> PendingAnswer | None:
    """End an instance that has no work any more; None if it has some."""
    deal.run.later("lock_instance", id=id)
    who = InstanceRow(deal.run("read_instance", id=id, now=deal.given))
    if who.there and who.assigned:
        return None
    if who.seen() in LIVING:
        who.state, who.expires_at = "left", who.now
        _note(deal, id, who, "left")
        who.write(deal.run, id)
    return who.beat()


def list_instances(fetch: Fetch, request: c.ListInstances) -> c.InstancePage:
    """Return a page of instances, in the order of their ids."""
    now: int = fetch("now", now=instant(request.now))[0][0]
    rows = fetch("list_instances", after=request.after, limit=request.limit + 1)
    page = tuple(_view(row, now) for row in rows[: request.limit])
    return c.InstancePage(page, page[-1].id if len(rows) > len(page) and page else None)


def _view(row: Row, now: int) -> c.InstanceView:
    id, name, host, pid, version, state, capacity, assigned, joined_at, beat_at, expires_at = row
    state = seen_at(state, expires_at, now)
    expires_in = (expires_at - now) / 1e6 if state in LIVING else 0.0
    about = id, name, host, pid, version, state, capacity, assigned
    return c.InstanceView(*about, joined_at / 1e6, beat_at / 1e6, expires_in)


def seen_at(state: c.InstanceState, end: int, now: int) -> c.InstanceState:
    """Return the state of an instance at an instant: who has not been heard of for too long is dead."""
    return "dead" if state in LIVING and end <= now else state


def _note(deal: Deal, id: str, who: InstanceRow, kind: EventKind) -> None:
    deal.note(c.instance_key(id), kind, who.now, who.name)
