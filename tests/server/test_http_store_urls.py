"""The url of a lock server: what it may say, and the access token that must not be told to anybody else."""

from __future__ import annotations

import logging
import math
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, errors
from holdfast.cli.target import shown as shown_by_commands
from holdfast.core import requests as r
from holdfast.stores import open_store, shown
from holdfast.stores.base import StoreOptions
from holdfast.stores.http.options import HTTPOptions, read_url
from holdfast.stores.http.tokens import VARIABLE
from tests.server.scripted import Scripted, answer, plain, problem

CLIENT = r.Client("i-1", "alpha", 101)
TOKEN = "hf_0123456789ab_" + "s" * 43
OTHER = "hf_0123456789ab_" + "t" * 43
REFUSED = problem("NotAuthenticated", 401, "no access token was given")


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def open_at() -> Iterator[Callable[..., object]]:
    opened = []

    def open_at(url: str):
        store = open_store(url, StoreOptions(CLIENT))
        store.open()
        opened.append(store)
        return store

    yield open_at
    for store in opened:
        store.close()


# Urls.


@pytest.mark.parametrize(
    ("url", "place", "port", "prefix"),
    [
        ("http://localhost:7373", "localhost:7373", 7373, ""),
        ("http://localhost", "localhost", 80, ""),
        ("HTTPS://Locks.Internal/", "locks.internal", 443, ""),
        ("https://locks.internal:443/a/b/", "locks.internal", 443, "/a/b"),
        ("http://[::1]:7373", "[::1]:7373", 7373, ""),
        ("https://bücher.example/größe", "xn--bcher-kva.example", 443, "/gr%C3%B6%C3%9Fe"),
        ("https://host/a%2Fb", "host", 443, "/a%2Fb"),
    ],
)
def test_where_a_server_is(url, place, port, prefix):
    options, token = read_url(url)
    assert (options.address, options.port, options.prefix, token) == (place, port, prefix, "")


def test_all_options_can_be_given():
    url = (
        "https://h?timeout=2.5&connect_timeout=1&pool_size=3&signals=off&repeats=yes"
        "&ca=/a.pem&cert=/c.pem&key=/k%20.pem&token_file=/t"
    )
    options, _ = read_url(url)
    assert options == HTTPOptions(
        secure=True,
        host="h",
        port=443,
        port_given=False,
        timeout=2.5,
        connect_timeout=1.0,
        pool_size=3,
        signals=False,
        repeats=True,
        ca="/a.pem",
        cert="/c.pem",
        key="/k .pem",
        token_file="/t",
    )


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("http://", "names no host"),
        ("http:///v1", "names no host"),
        ("http://host:0x1", "cannot be read"),
        ("http://host:99999", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://host#x", "has a '#'"),
        (f"https://{TOKEN}@host", "behind a colon"),
        ("http://host?colour=red", "the option 'colour'; there are timeout,"),
        ("http://host?timeout=1&timeout=2", "twice"),
        ("http://host?timeout", "cannot be read"),
        ("http://host?timeout=0", "timeout .* is '0'; it must be a number of seconds"),
        ("http://host?timeout=inf", "timeout"),
        ("http://host?timeout=soon", "timeout"),
        ("http://host?pool_size=0", "a whole number from 1 to 1000"),
        ("http://host?signals=perhaps", "true or false"),
        ("http://host?token_file=", "the name of a file"),
        ("http://host?ca=/a.pem", "ca is for https://"),
        ("https://host?insecure=true", "insecure is for http://"),
        ("https://host?key=/k.pem", "name that too, with cert="),
        ("https://" + "a" * 70 + "é.example", "cannot be the name of a host"),
    ],
)
def test_what_a_url_cannot_say(url, match):
    with pytest.raises(errors.SettingsError, match=match) as caught:
        open_store(url, StoreOptions(CLIENT))
    assert TOKEN not in str(caught.value)


# Access tokens.


def test_a_token_in_the_url_is_sent(server, open_at):
    open_at(server.url.replace("//", f"//:{TOKEN}@"))
    assert server.next("server").headers["authorization"] == f"Bearer {TOKEN}"


def test_a_token_in_the_environment_is_sent(server, open_at, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"{TOKEN}\n")
    open_at(server.url)
    assert server.next("server").headers["authorization"] == f"Bearer {TOKEN}"


def test_the_token_of_a_lease_is_not_taken_for_one(server, open_at, monkeypatch):
    """`holdfast run` passes a lease's token on to its command, as HOLDFAST_TOKEN."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "1794781653887012")
    open_at(server.url)
    assert "authorization" not in server.next("server").headers


def test_a_token_in_a_file_is_read_again_when_it_is_refused(server, open_at, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    store = open_at(f"{server.url}?token_file={file}")
    file.write_text(OTHER)
    server.on("/acquire", REFUSED)
    store.execute(r.Acquire("k", "a-1", "ann", 30.0, CLIENT))
    asked = [server.next("acquire").headers["authorization"] for _ in range(2)]
    assert asked == [f"Bearer {TOKEN}", f"Bearer {OTHER}"]


@pytest.mark.parametrize("now", ["", "two\nlines", None])
def test_a_file_that_is_just_being_written_changes_nothing(server, open_at, tmp_path, now):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    store = open_at(f"{server.url}?token_file={file}")
    if now is None:
        file.unlink()
    else:
        file.write_text(now)
    server.on("/release", REFUSED)
    with pytest.raises(errors.NotAuthenticated, match=f"does not accept the access token from {file}"):
        store.execute(r.Release("k", "a-1", 7))
    store.execute(r.Release("k", "a-1", 7))
    assert {server.next("release").headers["authorization"] for _ in range(2)} == {f"Bearer {TOKEN}"}


def test_without_a_token_whoever_needs_one_is_told_where_they_come_from(server, open_at):
    server.on("/v1/server", REFUSED)
    with pytest.raises(errors.NotAuthenticated, match=r"holdfast token create.*HOLDFAST_ACCESS_TOKEN"):
        open_at(server.url)


def test_a_proxy_that_wants_a_token_is_no_other_case(server, open_at):
    server.on("/v1/server", plain("<h1>Unauthorized</h1>", 401))
    with pytest.raises(errors.NotAuthenticated, match="Unauthorized"):
        open_at(server.url)


@pytest.mark.parametrize("text", ["two words", "ümlaut", "a\x7f", "x" * 501])
def test_what_cannot_be_a_token_is_not_sent(text, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(errors.SettingsError, match=rf"what is in \${VARIABLE} is no access token") as caught:
        open_store("http://localhost", StoreOptions(CLIENT))
    assert text not in str(caught.value)


def test_a_file_without_a_token_is_named(tmp_path):
    with pytest.raises(errors.StoreMisconfigured, match="No such file or directory; check token_file="):
        open_store(f"http://localhost?token_file={tmp_path}/none", StoreOptions(CLIENT))
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.StoreMisconfigured, match="it is not text"):
        open_store(f"http://localhost?token_file={file}", StoreOptions(CLIENT))


@pytest.mark.parametrize("host", ["locks.internal", "127.0.0.1.example", "10.0.0.1", "[fd00::1]"])
def test_a_token_does_not_leave_the_machine_in_clear_text(host):
    with pytest.raises(errors.SettingsError, match=r"in clear text.*insecure=true") as caught:
        open_store(f"http://:{TOKEN}@{host}", StoreOptions(CLIENT))
    assert TOKEN not in str(caught.value)
    open_store(f"http://:{TOKEN}@{host}?insecure=true", StoreOptions(CLIENT))
    open_store(f"https://:{TOKEN}@{host}", StoreOptions(CLIENT))
    open_store(f"http://{host}", StoreOptions(CLIENT))


@pytest.mark.parametrize("host", ["localhost:7373", "127.0.0.1", "127.8.9.1", "[::1]:7373"])
def test_on_this_machine_it_may(host):
    open_store(f"http://:{TOKEN}@{host}", StoreOptions(CLIENT))


def test_a_token_is_shown_to_nobody(server, caplog):
    caplog.set_level(logging.DEBUG)
    url = server.url.replace("//", f"//me:{TOKEN}@")
    told: list[str] = []
    with Holdfast(url) as locks:
        told += [
            repr(locks),
            repr(locks._engine.store),
            repr(locks._engine.store._tokens),
            repr(vars(locks._engine.store)["_how"]),
        ]
        for status in (401, 403, 404, 500, 502):
            server.on("/nightly", plain("no", status))
            server.on("/v1/signals", plain("no", status))
            with pytest.raises(errors.HoldfastError) as caught:
                locks._engine.store.execute(r.Inspect("nightly"))
            told += [str(caught.value), "".join(traceback.format_exception(caught.value))]
            told.append(repr(pickle.loads(pickle.dumps(caught.value))))
        locks._engine.store.be_reachable()
    assert not [text for text in [*told, caplog.text] if "s" * 43 in text]


@pytest.mark.parametrize(
    "url",
    [
        f"https://:{TOKEN}@host:7373/a",
        f"https://{TOKEN}@host:7373/a",
        f"https://me:{TOKEN}@host:7373/a?token_file=/t",
        f"https://host:7373/a?token={TOKEN}",
        f"https://host:7373/a#{TOKEN}",
    ],
)
def test_a_url_is_shown_without_its_token(url):
    assert shown(url).replace("***@", "") == shown_by_commands(url) == "https://host:7373/a"


def test_a_client_of_a_server_works_by_its_url_alone(server, open_at, tmp_path: Path):
    server.on("/v1/server", answer({"answer": "server", "store": {"durable": True, "signals": False}}))
    with Holdfast(server.url) as locks:
        assert repr(locks) == f"<Holdfast '{server.url}' 0 leases>"
        assert locks._engine.store.traits.swept
        assert locks._engine.keeper._sweep_at == math.inf  # the server does it, and we may have no right to
        with locks.hold("nightly") as lease:
            assert lease.token == 7
