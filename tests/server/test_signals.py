"""Signals by SSE: a client is woken at its address, whichever server wrote it into the ticket."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest

from holdfast.core.cluster import Claim, Claimed, Join, Offer, OfferedWork
from holdfast.core.requests import Break, Client, Queued, Release
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend
from holdfast.server.http.message import HTTPRequest, Stream
from holdfast.server.http.sse import Heartbeats
from holdfast.server.locks.waits import Waits
from holdfast.server.streams.signals import SignalStreams
from tests.server.streaming import (
    ANYTHING,
    Peer,
    asking,
    eventually,
    opened,
    serving,
    somebody,
    take,
)


def connect(streams: SignalStreams, principal: Principal = ANYTHING, **client: Any) -> Peer:
    stream = Stream()
    streams.open(stream, principal, **client)
    return Peer(stream)


async def queue(backend: Backend, key: str, attempt: str, address: str) -> None:
    """Join a queue as a client that is woken at *address*."""
    answer = await backend.ask(asking(backend, key, attempt, client=Client(address, "there", 7)))
    assert isinstance(answer, Queued)


async def test_a_client_is_told_its_address_and_woken_there(url: str):
    async with opened(url) as backend:
        streams = SignalStreams(backend)
        client = connect(streams)
        hello = await client.next("hello")
        assert hello["server"] == backend.instance
        assert hello["address"].startswith(f"{backend.instance}/")
        release = await take(backend, "k", "first")
        await queue(backend, "k", "a-1", hello["address"])
        await backend.ask(release)
        signal = await client.next("signal")
        assert (signal["kind"], signal["key"], signal["attempt"]) == ("granted", "k", "a-1")
        assert "expires_in" in signal


@pytest.mark.parametrize("may", [True, False])
async def test_a_winner_is_told_its_token_if_it_may_enter(memory: str, may: bool):
    """Somebody who has as many leases as they may have is told to ask, and then why not."""
    asked = []
    async with opened(memory) as backend:
        streams = SignalStreams(backend, may_enter=lambda *who: asked.append(who) or may)
        client = connect(streams)
        release = await take(backend, "k", "first")
        await queue(backend, "k", "a-1", (await client.next("hello"))["address"])
        await backend.ask(release)
        signal = await client.next("signal")
        assert ("token" in signal, "at" in signal) == (may, may)
        ((principal, told),) = asked
        assert (principal, told.key, told.attempt, told.token > 0) == (ANYTHING, "k", "a-1", True)


async def test_each_signal_reaches_its_own_stream_and_no_other(memory: str):
    async with opened(memory) as backend:
        streams = SignalStreams(backend)
        waiting = Waits(backend)  # whose signals have no stream
        one, two = connect(streams), connect(streams)
        release = await take(backend, "k", "first")
        await queue(backend, "k", "a-1", (await one.next("hello"))["address"])
        await queue(backend, "k", "a-2", (await two.next("hello"))["address"])
        await backend.ask(release)
        await one.next("signal")
        answer = await backend.ask(asking(backend, "k", "a-1"))
        assert not two.kinds.count("signal")
        await backend.ask(Release("k", "a-1", answer.token))
        await two.next("signal")
        assert one.kinds.count("signal") == 1
        await waiting.close()


async def test_a_release_through_another_server_is_pushed(url: str):
    """Two servers on one store: the one that has the client's stream is told."""
    async with opened(url) as here, opened(url) as there:
        streams = SignalStreams(here)
        client = connect(streams)
        address = (await client.next("hello"))["address"]
        release = await take(there, "k", "first")
        await queue(there, "k", "a-1", address)
        await there.ask(release)
        assert (await client.next("signal"))["attempt"] == "a-1"


async def test_a_holder_is_told_that_its_lease_was_broken(url: str):
    async with opened(url) as backend:
        streams = SignalStreams(backend)
        client = connect(streams)
        address = (await client.next("hello"))["address"]
        await take(backend, "k", "a-1", client=Client(address, "there", 7))
        await backend.ask(Break("k", by="me", reason="because"))
        assert (await client.next("signal"))["kind"] == "lost"


@pytest.mark.parametrize("type", ["job", ""], ids=["of a type", "of none"])
async def test_work_offered_through_another_server_is_pushed(url: str, type: str):
    """And its instance is told by the name that it calls itself."""
    async with opened(url) as here, opened(url) as there:
        streams = SignalStreams(here)
        client = connect(streams, somebody("acquire:*", name="ann"))
        who = Client((await client.next("hello"))["address"], "there", 7)
        assert (await there.ask(Join("ann/e-1", "ann/engine", who, 8, 90.0))).state == "alive"
        claim = Claim("ann/e-1", 1, "a-1", (type,), 8, 30.0, who)
        assert await there.ask(claim) == Claimed((), None)
        await there.ask(Offer((OfferedWork(f"{type}:1" if type else "bare"),)))
        told = {"kind": "work", "key": type, "attempt": "e-1", "expires_in": 0.0}
        assert await client.next("signal") == told


async def test_nobody_hears_of_keys_it_may_not_acquire(memory: str):
    async with opened(memory) as backend:
        streams = SignalStreams(backend)
        client = connect(streams, somebody("acquire:mine:*", "observe:*"))
        address = (await client.next("hello"))["address"]
        for key in ("secret", "mine:1"):
            release = await take(backend, key, f"{key}-first")
            await queue(backend, key, f"{key}-a", address)
            await backend.ask(release)
        assert (await client.next("signal"))["key"] == "mine:1"
        assert client.kinds == ["hello", "signal"]


async def test_who_is_connected_can_be_listed(memory: str):
    async with opened(memory) as backend:
        streams = SignalStreams(backend)
        connect(streams, somebody("acquire:*", name="ann"), instance="i-1", host="alpha", pid=41)
        leaving = connect(streams, somebody("acquire:*", name="bob"), instance="i-2", host="beta", pid=42)
        ann, bob = streams.listing()
        assert ann.pop("connected_for") >= 0
        assert ann.pop("address").startswith(f"{backend.instance}/")
        assert ann == {"instance": "i-1", "host": "alpha", "pid": 41, "principal": "ann"}
        assert bob["principal"] == "bob"
        leaving.leave()
        assert [each["principal"] for each in streams.listing()] == ["ann"]
        assert streams.count == 1


async def test_revoked_and_draining_clients_are_told(memory: str):
    async with opened(memory) as backend:
        streams = SignalStreams(backend)
        revoked = connect(streams, somebody("acquire:*", token_id="one"))
        other = connect(streams, somebody("acquire:*", token_id="two"))
        streams.revoke("one")
        assert (revoked.kinds, revoked.ended) == (["hello", "goodbye"], True)
        assert not other.ended
        streams.drain()
        assert other.events[-1][1]["reason"] == "draining"
        assert streams.count == 0


async def test_idle_streams_beat_and_those_that_left_do_not(memory: str):
    async with opened(memory) as backend:
        heartbeats = Heartbeats(0.005)
        streams = SignalStreams(backend, heartbeats=heartbeats)
        clients = [connect(streams) for _ in range(1200)]
        for client in clients:
            await client.until(lambda client: client.beats >= 2)
        clients[0].leave()
        beats = clients[0].beats
        seen = clients[1].beats
        await clients[1].until(lambda client: client.beats > seen + 2)
        assert clients[0].beats == beats
        for client in clients:
            client.leave()
        await eventually(lambda: heartbeats._task is None)  # nobody to beat for
        late = connect(streams)
        await late.until(lambda late: late.beats)
        heartbeats.close()


async def test_through_a_socket_a_client_is_woken_and_missed_when_it_leaves(url: str):
    async with opened(url) as backend:
        streams = SignalStreams(backend)

        async def handle(request: HTTPRequest) -> Stream:
            stream = Stream()
            streams.open(stream, ANYTHING, instance=parse_qs(request.query)["instance"][0])
            return stream

        async with serving(handle) as connect:
            client = await connect("/v1/signals?instance=i-1")
            address = (await client.next("hello"))["address"]
            release = await take(backend, "k", "first")
            await queue(backend, "k", "a-1", address)
            await backend.ask(release)
            await client.next("signal")
            await client.leave()
            await eventually(lambda: streams.count == 0)
