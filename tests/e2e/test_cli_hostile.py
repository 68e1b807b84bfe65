"""Whatever somebody chose to call himself, or to leave behind, steers nobody's terminal.

Every command that prints what is in a store is asked about a store in which every text is hostile. Stores
do not check what their clients have checked: so it is written there as by a client that checks nothing.
"""

import json
import logging
import unicodedata
from contextlib import closing

import pytest

from holdfast.cli import main
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.access import GrantAccess
from holdfast.core.family import Outcome, Terms
from holdfast.core.requests import Client
from holdfast.identity import new_client
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from tests.e2e.support import holdfast

STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Clears the screen; turns the direction around, twice; cannot be seen; ends the line; rings; paints.
BAD = "x\x1b[2J\u202eevil\u2066\u200b\u2028\r\n\x07\x9b31m\x00"
KEY = "k\u202e\u2066\u200bey"  # keys have at least no control characters
WORK = "w\u202e:\u2067\u200b1"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return hostile(tmp_path_factory.mktemp("hostile"))


def hostile(folder):
    """Return a store with nothing in it that is meant well."""
    url = f"sqlite:///{folder}/locks.db"
    bad, text = BAD.replace("\x00", ""), json.dumps(BAD, ensure_ascii=False)
    client = Client("i", bad, 7)
    with closing(open_store(url, StoreOptions(new_client(), "all"))) as store:
        store.open()
        ask = store.execute
        terms = Terms(mode="shared")
        ask(r.Acquire(KEY, f"{bad}1", f"{bad}1", 3600.0, client, terms=terms))
        ask(r.Acquire(KEY, f"{bad}2", f"{bad}2", 3600.0, client, terms=terms))
        ask(r.Acquire(KEY, f"{bad}3", f"{bad}3", 3600.0, client, wait=True, patience=3600.0))
        taken = ask(r.Acquire(f"{KEY}:op", "a", bad, 3600.0, client, terms=Terms(operation=True)))
        ask(r.Release(f"{KEY}:op", "a", taken.token, outcome=Outcome(succeeded=False, text=bad)))
        ask(r.Acquire(f"{KEY}:one", "a", bad, 3600.0, client))
        ask(r.Acquire(f"{KEY}:broken", "a", bad, 3600.0, client))
        ask(r.Break(f"{KEY}:broken", bad, bad))
        ask(c.Join(f"{bad}-id", f"{bad}-name", client, 4, 3600.0, bad))
        ask(c.Offer(tuple(c.OfferedWork(f"{WORK}{each}", data=text) for each in range(4))))
        for each, ending in ((1, None), (2, "completed"), (3, "failed")):
            given = ask(c.Assign(f"{WORK}{each}", "a", bad, 3600.0, client, id=f"{bad}-id"))
            if ending:
                said = text if ending == "completed" else bad
                ask(c.Finish(f"{WORK}{each}", "a", given.token, ending, said))
        ask(GrantAccess("a" * 12, bad, "0" * 64, (f"observe:{bad}",)))
    return url


COMMANDS = [
    ["ls", "--state", "all"],
    ["ls", "--owner", "nobody\u202e"],
    ["show", KEY],
    ["show", f"{KEY}:one"],
    ["show", f"{KEY}:op"],
    ["show", f"{KEY}:broken"],
    ["show", "never\u202e"],
    ["watch", "*", "--after", "0", "--timeout", "0"],
    ["instances", "--all"],
    ["work", "list", "--state", "all"],
    ["work", "list", "never\u202e"],
    *(["work", "show", f"{WORK}{each}"] for each in range(4)),
    ["work", "show", "never\u202e"],
    ["work", "forget", f"{WORK}1", "--yes"],
    ["work", "retry", f"{WORK}1", f"{WORK}0"],
    ["work", "offer", f"{WORK}2"],
    ["break", f"{KEY}:one", "--reason", "why\u202e"],
    ["break", f"{KEY}:one", "--reason", "why\u202e", "--token", "1", "--yes"],
    ["token", "list"],
    ["doctor"],
]


@pytest.fixture
def run(capsys):
    """Run a command here: there are many, and a process for each takes long."""
    logger = logging.getLogger("holdfast")
    before = logger.handlers, logger.propagate

    def run(*words):
        code = main(list(words))
        said = capsys.readouterr()
        shown = said.out + said.err
        assert shown
        bad = {sign for sign in shown if unicodedata.category(sign) in STEERING} - {"\n"}
        assert not bad, shown
        return code, shown

    yield run
    logger.handlers, logger.propagate = before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: ascii(" ".join(command[:3])))
def test_nothing_that_steers_a_terminal_is_printed(url, run, command):
    run(*command, "--url", url)


def test_who_holds_it_is_told_to_who_would_run_something(url):
    done = holdfast("run", f"{KEY}:one", "--timeout", "0", "--url", url, "--", "true")
    assert done.returncode == 75
    assert not {sign for sign in done.stderr if unicodedata.category(sign) in STEERING} - {"\n"}


def test_what_was_broken_or_forgotten_or_revoked_is_told_without_it(tmp_path, run):
    url = hostile(tmp_path)
    code, shown = run("break", KEY, "--reason", "why", "--yes", "--url", url)
    assert (code, "x\\x1b[2J" in shown) == (0, True)
    code, shown = run("work", "forget", f"{WORK}3", "--yes", "--url", url)
    assert (code, "is forgotten" in shown) == (0, True)
    code, shown = run("token", "revoke", "a" * 12, "--url", url)
    assert (code, "x\\x1b[2J" in shown) == (0, True)


def test_data_that_is_nested_deeply_is_shown(tmp_path, run):
    """As it is, if it is too deep to be made pretty."""
    url = f"sqlite:///{tmp_path}/locks.db"
    depths = (970, 5000)
    with closing(open_store(url, StoreOptions(new_client()))) as store:
        store.open()
        deep = tuple(c.OfferedWork(f"deep:{depth}", data="[" * depth + "]" * depth) for depth in depths)
        store.execute(c.Offer(deep))
    for depth in depths:
        assert run("work", "show", f"deep:{depth}", "--url", url)[0] == 0


def test_as_json_everything_is_exact(url):
    (line,) = holdfast("show", f"{KEY}:broken", "--json", "--url", url).stdout.splitlines()
    assert BAD.replace("\x00", "") in {event["reason"] for event in json.loads(line)["history"]}
