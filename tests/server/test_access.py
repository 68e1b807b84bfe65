"""Who is let in: tokens from a real store, shown in real requests; and other sites' pages, which are not."""

import asyncio
import base64
import hashlib
import itertools
import logging
import os
from contextlib import asynccontextmanager

import pytest

from holdfast.core.access import GrantAccess, RevokeAccess, parse_right
from holdfast.core.data import replace
from holdfast.core.wire.route import LONGEST_OWN
from holdfast.errors import (
    AccessDenied,
    NotAuthenticated,
    SettingsError,
    StoreUnavailable,
    TooManyRequests,
)
from holdfast.server.admission import access as module
from holdfast.server.admission import failures
from holdfast.server.admission.access import ANYONE, TRUSTED, Access, Principal, own_name, scoped
from holdfast.server.admission.failures import Failures
from holdfast.server.backend import Backend
from holdfast.server.http.message import HTTPRequest
from holdfast.server.settings import ServerSettings

_names = itertools.count()
REQUIRED = ServerSettings(auth="required")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Door:
    """A server's access to a store of its own, and what is needed to come in."""

    def __init__(self, backend, access, clock):
        self.backend = backend
        self.access = access
        self.clock = clock

    async def create(self, *rights, name="ci", ttl=None, now=None, reload=True):
        """Make a token, and return what is shown of it once."""
        secret = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
        id = os.urandom(6).hex()
        digest = hashlib.sha256(secret.encode()).hexdigest()
        await self.backend.ask(GrantAccess(id, name, digest, rights, ttl, now))
        if reload:
            await self.access.reload()
        return f"hf_{id}_{secret}"

    async def revoke(self, token):
        await self.backend.ask(RevokeAccess(token[3:15]))

    async def show(self, token=None, remote="192.0.2.7", **headers):
        headers = {"host": "localhost:7373"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self.clock.now += module.LOOK_AGAIN  # so nobody has to wait
        return await self.access.authenticate(
            HTTPRequest("GET", "/v1/server", headers=headers, remote=remote)
        )


@asynccontextmanager
async def door(settings=REQUIRED, url=None):
    backend = Backend(url or f"memory://access-{next(_names)}")
    await backend.open()
    clock = Clock()
    access = Access(backend, settings, clock=clock)
    await access.open()
    try:
        yield Door(backend, access, clock)
    finally:
        await access.close()
        await backend.close()


def with_door(settings=REQUIRED):
    """Run a test in a loop, with a door."""

    def decorate(test):
        def run():
            async def scene():
                async with door(settings) as there:
                    await test(there)

            asyncio.run(scene())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@with_door()
async def test_a_token_says_whose_it_is_and_what_it_is_good_for(there):
    token = await there.create("acquire:build:*", "observe:nightly")
    principal = await there.show(token)
    assert principal == Principal(
        "ci", (parse_right("acquire:build:*"), parse_right("observe:nightly")), token[3:15]
    )


@with_door()
async def test_a_token_that_was_made_just_now_works_at_once(there):
    token = await there.create("admin:*", reload=False)
    assert (await there.show(token)).name == "ci"


@with_door()
async def test_many_tokens_that_nobody_knows_are_looked_up_together(there):
    """And somebody with a new one among them is let in."""
    token = await there.create("admin:*", reload=False)
    guesses = [there.show(f"hf_{os.urandom(6).hex()}_{'x' * 43}", f"192.0.2.{n}") for n in range(50)]
    found = await asyncio.gather(there.show(token), *guesses, return_exceptions=True)
    assert isinstance(found[0], Principal)
    assert {type(each) for each in found[1:]} == {NotAuthenticated}


@with_door()
async def test_a_wrong_secret_is_not_let_in(there):
    token = await there.create("admin:*")
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    with pytest.raises(NotAuthenticated, match="not valid"):
        await there.show(wrong)
    with pytest.raises(NotAuthenticated, match="not valid"):
        await there.show(token.replace(token[3:15], "0" * 12))


@with_door()
async def test_unknown_ids_and_wrong_secrets_are_told_the_same(there):
    token = await there.create("admin:*")
    told = []
    for shown in (token[:16] + "x" * 43, f"hf_{'0' * 12}_{'x' * 43}"):
        with pytest.raises(NotAuthenticated) as raised:
            await there.show(shown)
        told.append(str(raised.value))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YWxhZGRpbjpvcGVuc2VzYW1l",
        "hf_0123456789ab_" + "x" * 43,
        "Bearer hf_0123456789ab_" + "x" * 42,
        "Bearer hf_0123456789ab_" + "x" * 44,
        "Bearer hf_0123456789AB_" + "x" * 43,
        "Bearer hf_0123456789ab_" + "é" * 43,
        "Bearer hf_0123456789ab_" + "x" * 43 + "\n",
        "Bearer hf_0123456789ab_" + "x" * 43 + ", Bearer hf_0123456789ab_" + "x" * 43,
        "Bearer " + "x" * 100_000,
    ],
    ids=lambda header: repr(header[:60]),
)
def test_a_malformed_header_is_no_token(header):
    async def scene():
        async with door() as there:
            with pytest.raises(NotAuthenticated, match="this is no access token"):
                await there.show(authorization=header)

    asyncio.run(scene())


@with_door()
async def test_the_scheme_may_be_written_in_any_case(there):
    token = await there.create("admin:*")
    assert (await there.show(authorization=f"bearer  {token}")).name == "ci"


@with_door()
async def test_without_a_token_nobody_is_let_in(there):
    with pytest.raises(NotAuthenticated, match="send it as 'Authorization: Bearer"):
        await there.show()


@with_door()
async def test_a_revoked_token_is_over_and_what_it_had_open_is_ended(there):
    ended = []
    there.access.on_revoked(ended.append)
    token, other = await there.create("admin:*"), await there.create("observe:*")
    await there.revoke(token)
    await there.access.reload()
    assert ended == [token[3:15]]
    with pytest.raises(NotAuthenticated):
        await there.show(token)
    assert (await there.show(other)).token_id == other[3:15]


@with_door()
async def test_one_callback_that_fails_does_not_keep_the_others_from_knowing(there):
    ended = []

    def fails(token_id):
        raise RuntimeError("no")

    there.access.on_revoked(fails)
    there.access.on_revoked(ended.append)
    token = await there.create("admin:*")
    await there.revoke(token)
    await there.access.reload()
    assert ended == [token[3:15]]


@with_door()
async def test_a_token_with_other_rights_than_before_is_another(there):
    """Somebody may have written it into the store anew; what is open was allowed by the old one."""
    ended = []
    there.access.on_revoked(ended.append)
    token = await there.create("admin:*")
    listed = there.access._listed
    there.access._learn(tuple(replace(each, rights=("observe:*",)) for each in listed))
    assert ended == [token[3:15]]
    there.access._learn(listed)
    assert len(ended) == 2


@with_door()
async def test_a_token_ends_by_the_stores_clock(there):
    token = await there.create("admin:*", ttl=60.0, now=1_000_000.0)  # long ago
    with pytest.raises(NotAuthenticated):
        await there.show(token)
    assert (await there.show(await there.create("admin:*", ttl=600.0))).name == "ci"


def test_a_server_notices_by_itself_what_others_revoke(monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.01)

    async def scene():
        async with door() as there:
            ended = asyncio.get_running_loop().create_future()
            token = await there.create("admin:*")
            there.access.on_revoked(ended.set_result)
            await there.revoke(token)
            assert await ended == token[3:15]

    asyncio.run(scene())


def test_while_the_store_is_away_known_tokens_stay_valid_for_some_minutes(tmp_path, caplog):
    """Whoever is unknown then is told that nobody knows, and not that the token is wrong."""

    async def scene():
        async with door(url=f"sqlite:///{tmp_path}/locks.db") as there:
            token = await there.create("admin:*")
            await there.backend.close()
            assert (await there.show(token)).name == "ci"
            with pytest.raises(StoreUnavailable):
                await there.show(f"hf_{'0' * 12}_{'x' * 43}")
            there.clock.now += TRUSTED
            with pytest.raises(StoreUnavailable, match="not known who may do what"):
                await there.show(token)

    asyncio.run(scene())


def test_that_tokens_cannot_be_read_is_logged_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "EVERY", 0.001)

    async def scene():
        async with door(url=f"sqlite:///{tmp_path}/locks.db") as there:
            await there.backend.close()
            read, often, asked = there.access.reload, asyncio.Event(), []

            async def counting():
                asked.append(1)
                if len(asked) == 5:
                    often.set()
                await read()

            there.access.reload = counting
            await often.wait()

    with caplog.at_level(logging.WARNING, "holdfast"):
        asyncio.run(scene())
    assert len([r for r in caplog.records if "cannot read the access tokens" in r.message]) == 1


@with_door()
async def test_a_right_that_is_not_understood_gives_nothing(there):
    token = await there.create("observe:a", "fly:*")
    assert (await there.show(token)).rights == (parse_right("observe:a"),)


@pytest.mark.parametrize(
    "digest",
    ["", "no hex", "00" * 31, hashlib.sha256(b"").hexdigest()],
    ids=["empty", "odd", "short", "none"],
)
def test_a_token_without_a_proper_hash_is_none(digest):
    async def scene():
        async with door() as there:
            await there.backend.ask(GrantAccess("0" * 12, "ci", digest, ("admin:*",)))
            await there.access.reload()
            assert there.access.tokens == 0

    asyncio.run(scene())


@with_door()
async def test_secrets_and_their_hashes_are_not_shown(there):
    token = await there.create("admin:*")
    principal = await there.show(token)
    digest = hashlib.sha256(token[16:].encode()).hexdigest()
    request = HTTPRequest("GET", "/", headers={"authorization": f"Bearer {token}"})
    for thing in (there.access, principal, request, *there.access._tokens.values()):
        assert token[16:] not in repr(thing)
        assert digest not in repr(thing)


# Where nobody is asked.


@with_door(ServerSettings())
async def test_on_this_machine_nobody_is_asked_until_there_is_a_token(there):
    ended = []
    there.access.on_revoked(ended.append)
    assert await there.show() is ANYONE
    token = await there.create("observe:*", reload=False)
    assert (await there.show(token)).name == "ci"
    with pytest.raises(NotAuthenticated):
        await there.show()
    assert ended == [""]  # whoever came in before has to show one as well


@with_door(ServerSettings())
async def test_revoking_the_last_token_does_not_open_the_door(there):
    await there.revoke(await there.create("observe:*"))
    await there.access.reload()
    with pytest.raises(NotAuthenticated):
        await there.show()


@with_door(ServerSettings())
async def test_a_token_that_is_not_needed_does_no_harm(there):
    assert await there.show(f"hf_{'0' * 12}_{'x' * 43}") is ANYONE


@with_door(ServerSettings(host="0.0.0.0"))
async def test_beyond_this_machine_a_token_is_always_needed(there):
    with pytest.raises(NotAuthenticated):
        await there.show()


@with_door(ServerSettings(host="0.0.0.0", insecure_no_authentication=True))
async def test_who_wants_everybody_in_gets_everybody_in(there):
    await there.create("observe:*")
    assert await there.show(host="locks.example:7373") is ANYONE
    with pytest.raises(AccessDenied):
        await there.show(host="locks.example:7373", origin="https://elsewhere.example")


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:7373", "LOCALHOST:80", "127.0.0.1:7373", "127.1.2.3", "[::1]:7373", "[::1]"],
)
def test_this_machine_is_served_by_its_names(host):
    async def scene():
        async with door(ServerSettings()) as there:
            assert await there.show(host=host) is ANYONE
            assert (
                await there.show(host=host, origin=f"http://{host}", sec_fetch_site="same-origin") is ANYONE
            )
            assert await there.show(host=host, sec_fetch_site="none") is ANYONE

    asyncio.run(scene())


@pytest.mark.parametrize(
    "host",
    [
        "",
        "rebound.example:7373",
        "localhost.example",
        "127.0.0.1.example:7373",
        "192.0.2.1:7373",
        "[::2]:7373",
        "[::1",
        "localhost:7373:1",
        "localhost:port",
        "localhost:7373, evil.example",
    ],
)
def test_a_name_that_somebody_gave_our_address_is_not_served(host):
    """A page of rebound.example reaches 127.0.0.1 when its name does; its browser sees one origin."""

    async def scene():
        async with door(ServerSettings()) as there:
            with pytest.raises(AccessDenied, match="no name of this machine"):
                await there.show(host=host, origin=f"http://{host}")

    asyncio.run(scene())


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "localhost:7373"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
    ids=str,
)
def test_pages_of_other_sites_are_not_served(headers):
    async def scene():
        async with door(ServerSettings()) as there:
            with pytest.raises(AccessDenied, match="may not use this server"):
                await there.show(**headers)

    asyncio.run(scene())


@with_door()
async def test_with_a_token_it_does_not_matter_where_a_page_is_from(there):
    """No page has it unless its user gave it to it."""
    token = await there.create("admin:*")
    principal = await there.show(token, host="locks.example", origin="https://elsewhere.example")
    assert principal.name == "ci"


# Those who only guess.


@with_door()
async def test_who_fails_again_and_again_is_told_to_slow_down_and_the_valid_are_not(there):
    token = await there.create("admin:*")
    wrong = f"hf_{'0' * 12}_{'x' * 43}"
    told = []
    for _ in range(60):
        there.clock.now -= module.LOOK_AGAIN  # no time passes
        with pytest.raises((NotAuthenticated, TooManyRequests)) as raised:
            await there.show(authorization="Bearer nonsense")
        told.append(raised.type)
    assert told == [NotAuthenticated] * 20 + [TooManyRequests] * 40
    there.clock.now -= module.LOOK_AGAIN
    with pytest.raises(TooManyRequests) as limited:
        await there.show(wrong)
    assert 0 < limited.value.retry_after <= 2
    assert (await there.show(token)).name == "ci"
    with pytest.raises(NotAuthenticated):
        await there.show(wrong, remote="198.51.100.1")
    there.clock.now += 2
    with pytest.raises(NotAuthenticated):
        await there.show(wrong)


def exhaust(counted, remote):
    for _ in range(int(failures.AT_ONCE)):
        counted.count(remote)


def test_a_network_of_the_sixth_version_is_one_address():
    counted = Failures(lambda: 0.0)
    exhaust(counted, "2001:db8::1")
    with pytest.raises(TooManyRequests):
        counted.count("2001:db8:0:0:ffff::2")
    counted.count("2001:db8:0:1::1")
    counted.count("fe80::1%eth0")
    counted.count("::ffff:192.0.2.1")
    counted.count("/run/holdfast.sock")
    assert len(counted) == 5


def test_the_table_of_addresses_has_an_end(monkeypatch):
    monkeypatch.setattr(failures, "MOST", 100)
    counted = Failures(lambda: 0.0)
    exhaust(counted, "192.0.2.1")
    for n in range(99):
        counted.count(f"198.51.100.{n}")
    with pytest.raises(TooManyRequests):
        counted.count("192.0.2.1")  # who comes again is not forgotten
    for n in range(99):
        counted.count(f"203.0.113.{n}")
    assert len(counted) == 100
    counted.count("198.51.100.1")


# Names and rights.


def principal(*rights, name="ci"):
    return Principal(name, tuple(map(parse_right, rights)))


def test_a_principal_may_what_any_of_its_rights_allows():
    who = principal("acquire:build:*", "observe:nightly")
    assert who.may("acquire", "build:main")
    assert who.may("observe", "nightly")
    assert not who.may("observe", "build:main")
    assert not who.may("break", "build:main")
    assert not principal().may("observe", "nightly")


def test_everywhere_means_every_key_and_not_the_empty_one():
    assert principal("observe:*").everywhere("observe")
    assert principal("admin:*").everywhere("observe")
    assert not principal("observe:a*").everywhere("observe")
    assert not principal("observe:*").everywhere("admin")
    assert ANYONE.everywhere("admin")


def test_anything_is_any_key_at_all():
    assert principal("acquire:a").any("acquire")
    assert principal("admin:a*").any("observe")
    assert not principal("acquire:a").any("observe")


def test_ranges_are_in_order():
    who = principal("observe:b*", "admin:a", "acquire:c*")
    assert [str(each) for each in who.ranges("observe")] == ["admin:a", "observe:b*"]


def test_a_name_that_somebody_gives_itself_is_theirs_alone():
    assert scoped(principal(), "worker-7") == "ci/worker-7"
    assert scoped(ANYONE, "worker-7") == "worker-7"
    assert scoped(principal(name="a/b"), "c") != scoped(principal(name="a"), "b/c")
    assert scoped(principal(name="a%2Fb"), "c") != scoped(principal(name="a/b"), "c")


def test_a_name_has_an_end():
    assert scoped(principal(), "w" * LONGEST_OWN).endswith("/" + "w" * LONGEST_OWN)
    with pytest.raises(SettingsError, match="because the name of the access token stands before it"):
        scoped(principal(), "w" * (LONGEST_OWN + 1))
    assert scoped(ANYONE, "w" * 255) == "w" * 255


def test_who_gives_no_name_has_one_that_tells_nothing_of_the_attempt():
    assert own_name(principal(), "secret-1", b"s") == own_name(principal(), "secret-1", b"s")
    assert own_name(principal(), "secret-1", b"s") != own_name(principal(), "secret-2", b"s")
    assert own_name(principal(), "secret-1", b"s").startswith("ci-")
    assert own_name(ANYONE, "secret-1", b"s").startswith("anonymous-")
    assert "secret" not in own_name(ANYONE, "secret-1", b"s")
    assert own_name(principal(name="a/b"), "x", b"s").startswith("a%2Fb-")
