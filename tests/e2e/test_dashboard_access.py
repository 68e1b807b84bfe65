"""The dashboard in a world that is not friendly: hostile text, lost connections, and who may what."""

import re
import signal
import sqlite3
from contextlib import closing
from urllib.parse import quote

from tests.e2e.browsing import acquire, expect, row, rows, sign_in, token
from tests.e2e.serving import served
from tests.e2e.support import holdfast

HOSTILE = '<img src=x onerror="document.title=1">"\'`${1}'

# What others wrote.


def test_hostile_text_is_shown_as_text(page, server):
    key, owner = f"{HOSTILE}:key", f"{HOSTILE}\u202eowner"
    shown = owner.replace("\u202e", "\\u202e")
    acquire(server, key, owner, operation=True)
    acquire(server, key, f"{owner}2", operation=True, wait=True)
    page.goto(server.url)
    link = page.get_by_role("link", name=key, exact=True)
    expect(link).to_be_visible()
    expect(page.locator(".row:not([hidden]) .owner")).to_have_text(shown)
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(key)
    expect(page.get_by_role("cell", name=shown, exact=True).first).to_be_visible()
    page.get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{shown} on host-1")
    dialog.get_by_label("Reason").fill(HOSTILE)
    dialog.get_by_role("button", name="Force-release").click()
    expect(dialog.get_by_role("status")).to_contain_text(shown)
    dialog.get_by_role("link", name="Its history").click()
    expect(page.locator("tr[data-kind=broken] td.reason")).to_have_text(HOSTILE)
    page.goto(f"{server.url}/#/events")
    expect(rows(page).first).to_have_text(key)
    assert page.locator("img, script:not([src])").count() == 0
    assert page.title() != "1"


def test_nothing_is_fetched_from_elsewhere_and_nothing_is_inline(page, server):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(server.url)
    expect(page.locator("#light")).to_have_text("live")
    assert {url for url in asked if not url.startswith(server.url)} == set()
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


# The connection.


def test_it_comes_back_by_itself_after_the_server_was_killed(page, server, url):
    acquire(server, "nightly")
    page.goto(server.url)
    expect(row(page, "nightly")).to_be_visible()
    expect(page.locator("#light")).to_have_text("live")
    server.end(signal.SIGKILL)
    banner = page.locator("#banner")
    expect(banner).to_contain_text(re.compile(r"Disconnected since \d\d:\d\d:\d\d"))
    expect(page.locator("#light")).to_have_text("offline")
    expect(page.locator("body")).to_have_attribute("data-stale", "true")  # what is still to be seen is greyed
    expect(row(page, "nightly")).to_be_visible()
    expect(page.get_by_text(re.compile("1 lock, as of .* ago"))).to_be_visible()
    with served("--url", url, "--port", server.url.rpartition(":")[2], "--log-level", "error") as again:
        expect(banner).to_be_hidden()
        expect(page.locator("#light")).to_have_text("live")
        acquire(again, "another")
        expect(row(page, "another")).to_be_visible()
        expect(page.locator("body")).not_to_have_attribute("data-stale", "true")


def test_the_stream_goes_on_where_it_broke_off(page, server, url, locks):
    page.goto(f"{server.url}/#/events")
    expect(page.locator("#light")).to_have_text("live")
    acquire(server, "pull:before", operation=True)
    expect(rows(page)).to_have_text(["pull:before"])
    server.end(signal.SIGKILL)
    expect(page.locator("#light")).to_have_text("offline")
    locks.break_lock("pull:before", reason="while it was away")
    with served("--url", url, "--port", server.url.rpartition(":")[2], "--log-level", "error") as again:
        expect(page.locator("#light")).to_have_text("live")
        acquire(again, "pull:after", operation=True)
        expect(page.locator(".row:not([hidden]) .kind")).to_have_text(
            ["granted", "failed", "broken", "granted"]
        )


# The store behind the server.


def test_it_does_not_say_live_while_nothing_can_be_written(page, server, tmp_path):
    acquire(server, "nightly")
    page.goto(server.url)
    expect(page.locator("#light")).to_have_text("live")
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        expect(page.locator("#light")).to_have_text("not ready")
        expect(page.locator("#banner")).to_contain_text("The server is not ready: a write")
        expect(row(page, "nightly")).to_be_visible()  # what can be read is shown, and is not old
        expect(page.locator("body")).not_to_have_attribute("data-stale", "true")
        page.goto(f"{server.url}/#/server")
        expect(page.locator(".facts")).to_contain_text("not ready: a write")
        expect(page.locator(".facts")).not_to_contain_text("serving")
    expect(page.locator(".facts")).to_contain_text("serving")
    expect(page.locator("#light")).to_have_text("live")
    expect(page.locator("#banner")).to_be_hidden()


def test_it_does_not_say_live_while_nothing_can_be_read(page, server, tmp_path):
    acquire(server, "nightly")
    page.goto(server.url)
    expect(page.locator("#light")).to_have_text("live")
    (tmp_path / "locks.db").rename(tmp_path / "old.db")
    expect(page.locator("#light")).to_have_text("stale")
    expect(page.locator("#banner")).to_contain_text("cannot answer")
    expect(page.locator("body")).to_have_attribute("data-stale", "true")


def test_it_does_not_say_live_while_a_proxy_answers_whether_it_is_ready(page, server):
    page.route(
        "**/readyz", lambda route: route.fulfill(status=401, content_type="text/html", body="<p>Log in")
    )
    page.goto(f"{server.url}/#/server")
    expect(page.locator("#light")).to_have_text("connected")
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator(".facts")).to_contain_text("whether it is ready cannot be found out")
    page.unroute("**/readyz")
    expect(page.locator("#light")).to_have_text("live")


# Who may what.


def test_one_signs_in_with_a_token_and_out_again(page, url):
    secret = token(url, "ada", "admin:*")
    with served("--url", url, "--log-level", "error") as server:
        sign_in(page, server, "hf_000000000000_" + "x" * 43)
        expect(page.get_by_role("alert").get_by_text("does not know this token")).to_be_visible()
        page.get_by_label("Access token").fill(secret)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Nothing is locked")).to_be_visible()
        expect(page.locator("#account")).to_have_text("ada")
        expect(page.locator("#read-only")).to_be_hidden()
        page.reload()
        expect(page.locator("#account")).to_have_text("ada")
        assert secret not in page.evaluate("JSON.stringify(localStorage)")  # only for this tab
        page.locator("#account").click()
        expect(page.get_by_role("dialog")).to_contain_text("admin:*")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Access token")).to_be_visible()
        assert secret not in page.evaluate("JSON.stringify(sessionStorage)")
        page.reload()
        expect(page.get_by_label("Access token")).to_be_visible()


def test_a_token_can_be_remembered_until_it_is_revoked(page, url):
    secret = token(url, "ada", "admin:*")
    with served("--url", url, "--log-level", "error") as server:
        page.goto(server.url)
        page.get_by_label("Remember on this device").check()
        page.get_by_label("Access token").fill(secret)
        page.keyboard.press("Enter")
        expect(page.locator("#account")).to_have_text("ada")
        assert secret in page.evaluate("JSON.stringify(localStorage)")
        assert holdfast("token", "revoke", secret.split("_")[1], "--url", url).returncode == 0
        expect(page.get_by_text("You were signed out")).to_be_visible()
        assert secret not in page.evaluate("JSON.stringify(localStorage)")


def test_who_may_only_look_is_offered_nothing_else(page, url, locks):
    secret = token(url, "grafana", "observe:*")
    with locks.hold("nightly", owner="worker-7"), served("--url", url, "--log-level", "error") as server:
        sign_in(page, server, secret)
        expect(page.locator("#read-only")).to_have_text("read-only")
        expect(row(page, "nightly")).to_be_visible()
        page.keyboard.press("j")
        page.keyboard.press("b")
        expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-key", "nightly")
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("nightly")
        expect(page.get_by_role("cell", name="worker-7")).to_be_visible()
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_part_of_the_keys_is_all_that_some_see_and_break(page, url, locks):
    secret = token(url, "ci", "observe:build:*", "break:build:1")
    _leases = [locks.acquire(key) for key in ("build:1", "build:2", "secret:1")]
    with served("--url", url, "--log-level", "error") as server:
        sign_in(page, server, secret)
        expect(rows(page)).to_have_text(["build:1", "build:2"])
        row(page, "build:1").hover()
        expect(row(page, "build:1").locator("[data-act=break]")).to_be_visible()
        row(page, "build:2").hover()
        expect(row(page, "build:2").locator("[data-act=break]")).to_be_hidden()
        page.goto(f"{server.url}/#/lock/{quote('secret:1')}")
        expect(page.get_by_role("heading", name="The server did not show this lock")).to_be_visible()


def test_who_has_no_rights_is_told_so(page, url, locks):
    secret = token(url, "robot", "acquire:build:*")
    with locks.hold("nightly"), served("--url", url, "--log-level", "error") as server:
        sign_in(page, server, secret)
        expect(page.get_by_role("heading", name="No rights to look")).to_be_visible()
        expect(page.locator("#read-only")).to_have_text("no rights")
        expect(rows(page)).to_have_count(0)
        page.locator("#account").click()
        expect(page.get_by_role("dialog")).to_contain_text(
            "take and release locks, offer and do work: keys that begin with build:"
        )


# Parts of it that are easier asked by themselves.


def test_the_stream_is_read_however_it_is_cut(page, server):
    page.goto(server.url)
    text = ': hello\n\nid: 7\n\nid: 8\r\nevent: broken\r\ndata: {"a": "é"}\r\n\r\n'
    text += "data: one\rdata: two\r\revent: x\n\n"
    read = """async ([text, size]) => {
        const { parser } = await import("/dashboard/lib/stream.js");
        const found = [];
        const take = parser(({ id, event, data }) => found.push([id ?? "", event, data]));
        for (let at = 0; at < text.length; at += size) take(text.slice(at, at + size));
        return found;
    }"""
    wanted = [["7", "message", ""], ["8", "broken", '{"a": "é"}'], ["", "message", "one\ntwo"]]
    for size in (1, 2, 3, 7, len(text)):
        assert page.evaluate(read, [text, size]) == wanted


def test_leases_are_told_from_a_history_of_ends_only(page, server):
    page.goto(server.url)
    events = [
        {"kind": "expired", "token": 1_700_000_000_000_000, "owner": "a", "at": 1_700_000_010},
        {"kind": "withdrawn", "token": 1_700_000_020_000_000, "owner": "waiter", "at": 1_700_000_025},
        {"kind": "broken", "token": 1_700_000_020_000_000, "owner": "b", "at": 1_700_000_030},
        {"kind": "failed", "token": 1_700_000_020_000_000, "owner": "b", "at": 1_700_000_030},
    ]
    held = [{"token": 1_700_000_030_500_000, "owner": "c", "held_for": 9.6}]
    found = page.evaluate(
        """async ([events, held]) => {
            const { leases } = await import("/dashboard/lib/spans.js");
            const found = leases(events, held, 1700000040);
            return found.map((each) => [each.owner, each.from, each.to, each.end, each.lane]);
        }""",
        [events, held],
    )
    assert found == [
        ["a", 1_700_000_000, 1_700_000_010, "expired", 0],
        ["b", 1_700_000_020, 1_700_000_030, "broken", 0],
        ["c", 1_700_000_030.5, 1_700_000_040, None, 0],
    ]
