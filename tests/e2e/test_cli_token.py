"""`holdfast token`: made, listed, revoked, on every store and through a server."""

import hashlib
import json
import re

import pytest

from holdfast import identity
from holdfast.core.access import ListAccess
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from tests.e2e.serving import served
from tests.e2e.support import holdfast, output

TOKEN = re.compile(r"hf_([0-9a-f]{12})_([0-9A-Za-z_-]{43})\n")


@pytest.fixture(params=["sqlite", "postgres_locks", "mariadb_locks", "http"])
def anywhere(request, url, monkeypatch):
    """A store of each kind, as the command line's default."""
    if request.param == "http":
        with served("--url", url) as server:
            monkeypatch.setenv("HOLDFAST_URL", server.url)
            yield server.url
        return
    if request.param != "sqlite":
        url = request.getfixturevalue(request.param)
        monkeypatch.setenv("HOLDFAST_URL", url)
    yield url


def kept(url):
    store = open_store(url, StoreOptions(identity.new_client()))
    store.open()
    try:
        return store.execute(ListAccess())
    finally:
        store.close()


def create(*args):
    done = holdfast("token", "create", *args)
    assert done.returncode == 0, done.stderr
    return done


def test_a_token_is_made_shown_once_listed_and_revoked(anywhere, monkeypatch):
    made = create("ops", "--allow", "admin:*")
    id, _ = TOKEN.fullmatch(made.stdout).groups()
    assert "shown only now" in made.stderr
    monkeypatch.setenv("HOLDFAST_ACCESS_TOKEN", made.stdout.strip())  # from now on a server asks for it
    header, row = output("token", "list").splitlines()
    assert header.split() == ["ID", "NAME", "CREATED", "EXPIRES", "RIGHTS"]
    assert (row.split()[:2], row.split()[-2:]) == ([id, "ops"], ["never", "admin:*"])
    assert output("token", "revoke", id) == f"revoked {id}, which let ops admin:*\n"


def test_the_store_has_the_hash_of_the_secret_and_not_the_secret(url, tmp_path):
    id, secret = TOKEN.fullmatch(create("ci", "--allow", "acquire:build:*").stdout).groups()
    (token,) = kept(url)
    assert (token.id, token.name, token.rights) == (id, "ci", ("acquire:build:*",))
    assert token.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 30 * 86400), ("12h", 43200), ("90", 90), ("1w", 604800)]
)
def test_a_token_may_end_by_itself(text, seconds, url):
    create("ci", "--allow", "observe:*", "--ttl", text)
    (token,) = kept(url)
    assert token.expires_at - token.created_at == pytest.approx(seconds, abs=0.01)


def test_for_machines_it_is_json(url):
    made = json.loads(create("ci", "--allow", "observe:*", "--allow", "acquire:a", "--json").stdout)
    assert made["rights"] == ["observe:*", "acquire:a"]
    assert TOKEN.fullmatch(made["token"] + "\n")[1] == made["id"]
    (listed,) = map(json.loads, output("token", "list", "--json").splitlines())
    assert listed == {name: value for name, value in made.items() if name != "token"}
    assert json.loads(output("token", "revoke", made["id"], "--json")) == listed
    assert "digest" not in listed


def test_a_right_that_is_given_twice_is_kept_once(url):
    create("ci", "--allow", "observe:*", "--allow", "observe:*")
    assert kept(url)[0].rights == ("observe:*",)


def test_what_is_not_there_cannot_be_revoked(url):
    create("ci", "--allow", "observe:*")
    done = holdfast("token", "revoke", "0123456789ab")
    assert done.returncode == 1
    assert "holdfast token list" in done.stderr


def test_without_tokens_the_list_says_how_to_make_one(url, locks):
    with locks.hold("nightly"):
        done = holdfast("token", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "holdfast token create" in done.stderr


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("create",), "who?"),
        (("create", "ci"), "--allow"),
        (("create", "a b", "--allow", "observe:*"), "name is 'a b'"),
        (("create", "ci", "--allow", "rule:*"), "'rule:*' is no right"),
        (("create", "ci", "--allow", "observe:*", "--ttl", "soon"), "is not a time such as 12h"),
        (("create", "ci", "--allow", "observe:*", "--ttl", "0"), "is not a time"),
        (("list", "ci"), "takes no name"),
        (("revoke",), "who?"),
        (("revoke", "x", "--ttl", "1h"), "are for 'holdfast token create'"),
        (("rename", "x"), "invalid choice"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_made(args, complaint, url, tmp_path):
    done = holdfast("token", *args)
    assert (done.returncode, done.stdout) == (64, "")
    assert complaint in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_listing_does_not_make_a_file(url, tmp_path):
    done = holdfast("token", "list")
    assert done.returncode == 79
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_admin_cannot_make_tokens_through_a_server(url, monkeypatch):
    token = create("ci", "--allow", "acquire:*").stdout.strip()
    with served("--url", url) as server:
        monkeypatch.setenv("HOLDFAST_ACCESS_TOKEN", token)
        done = holdfast("token", "create", "me", "--allow", "admin:*", "--url", server.url)
    assert (done.returncode, done.stdout) == (67, "")
    assert len(kept(url)) == 1
