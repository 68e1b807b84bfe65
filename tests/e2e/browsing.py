"""A real browser on a real server: the fixtures, and what the tests of the dashboard have in common."""

from __future__ import annotations

import re
import shutil
from urllib.parse import quote

import pytest

from tests.e2e.serving import ENOUGH, served
from tests.e2e.support import holdfast

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    expect = sync_playwright = None
else:
    expect.set_options(timeout=ENOUGH * 1000)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    if sync_playwright is None:
        pytest.skip("missing: playwright for Python")
    if CHROMIUM is None:
        pytest.skip("missing: chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A fresh browser window; what goes wrong in it fails the test, the connection aside."""
    wrong = []
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(ENOUGH * 1000)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    yield page
    context.close()
    assert [text for text in wrong if not text.startswith("Failed to load resource")] == []


@pytest.fixture
def server(url):
    with served("--url", url, "--log-level", "error") as server:
        yield server


def acquire(server, key, owner="worker-7", **more):
    """Take a lock, or wait for it, and return the answer as text."""
    pid = {"client": {"instance": "", "host": "host-1", "pid": 4242}}
    path = f"/v1/locks/{quote(key, safe='')}/acquire"
    body = {
        "attempt": f"{owner} {key}",
        "owner": owner,
        "ttl": 600,
        "patience": 600,
        "claim": 600,
        **pid,
        **more,
    }
    status, text = server.ask("POST", path, body)
    assert status in (200, 202), text
    return text


def release(server, key, owner="worker-7", **more):
    """Give back what was acquired; *terms* are those it was acquired on."""
    token = int(re.search(r'"token":(\d+)', acquire(server, key, owner, **more.pop("terms", {})))[1])
    body = {"attempt": f"{owner} {key}", "token": token, **more}
    status, text = server.ask("POST", f"/v1/locks/{quote(key, safe='')}/release", body)
    assert status == 200, text


def token(url, name, *rights):
    """Make an access token and return it."""
    allowed = [word for right in rights for word in ("--allow", right)]
    return holdfast("token", "create", name, *allowed, "--url", url).stdout.strip()


def row(page, key):
    """Return the row of a lock in the list."""
    return page.locator(f'.row:not([hidden])[data-key="{key}"]')


def rows(page):
    """Return the keys of the list, of locks or events, as far as it is in the page."""
    return page.locator(".row:not([hidden]) .key")


def sign_in(page, server, secret):
    page.goto(server.url)
    page.get_by_label("Access token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
