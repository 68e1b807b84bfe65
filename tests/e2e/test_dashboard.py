"""The dashboard: what is seen and found in it, and done with it. The rest is in `test_dashboard_access`."""

import re
import urllib.request
from contextlib import closing
from urllib.parse import quote

from holdfast.core.requests import Acquire, Client
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from tests.e2e.browsing import acquire, expect, release, row, rows
from tests.e2e.serving import ENOUGH

# Looking.


def test_locks_appear_change_hands_and_go_while_one_looks(page, server):
    page.goto(server.url)
    expect(page.locator("#light")).to_have_text("live")
    expect(page.get_by_role("heading", name="Nothing is locked")).to_be_visible()
    acquire(server, "nightly", "worker-7")
    expect(row(page, "nightly").locator(".owner")).to_have_text("worker-7")
    expect(row(page, "nightly").locator(".where")).to_have_text("host-1:4242")
    expect(row(page, "nightly").locator(".state")).to_have_text("held")
    acquire(server, "nightly", "worker-8", wait=True)
    expect(row(page, "nightly").locator(".queue")).to_have_text("1")
    release(server, "nightly", "worker-7")
    expect(row(page, "nightly").locator(".owner")).to_have_text("worker-8")
    expect(row(page, "nightly").locator(".state")).to_have_text("handed over")
    release(server, "nightly", "worker-8")
    expect(row(page, "nightly")).to_have_count(0)


def test_what_is_left_of_a_lease_counts_down(page, server):
    acquire(server, "nightly", ttl=3000)
    page.goto(server.url)
    left = row(page, "nightly").locator(".left")
    expect(left).to_have_text(re.compile(r"^4\dm \d\ds$"))
    first = left.inner_text()
    expect(left).not_to_have_text(first)


def test_a_search_narrows_the_list_as_one_types(page, server):
    for number in range(5):
        acquire(server, f"build:{number}", f"worker-{number}")
        acquire(server, f"deploy:{number}", f"worker-{number}")
    page.goto(server.url)
    expect(rows(page)).to_have_count(10)
    search = page.get_by_role("searchbox")
    search.press_sequentially("buil")
    expect(rows(page)).to_have_text([f"build:{number}" for number in range(5)])
    search.fill("worker-3")
    expect(rows(page)).to_have_text(["build:3", "deploy:3"])
    search.fill("worker-3 DEPLOY")
    expect(rows(page)).to_have_text(["deploy:3"])
    search.fill("nothing")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Clear filters").last.click()
    expect(rows(page)).to_have_count(10)
    page.get_by_label("Type", exact=True).select_option("build")
    expect(rows(page)).to_have_count(5)
    page.get_by_label("Owner", exact=True).select_option("worker-4")
    expect(rows(page)).to_have_text(["build:4"])
    page.reload()  # the choice is in the address
    expect(rows(page)).to_have_text(["build:4"])


def test_locks_can_be_chosen_by_how_they_stand(page, server):
    acquire(server, "busy")
    acquire(server, "busy", "worker-8", wait=True)
    acquire(server, "quiet")
    acquire(server, "pull:model", operation=True)
    release(server, "idle")
    page.goto(server.url)
    expect(rows(page)).to_have_text(["busy", "pull:model", "quiet"])
    for tab, found in {
        "Contended": ["busy"],
        "Operations": ["pull:model"],
        "Free": ["idle"],
        "All": ["busy", "idle", "pull:model", "quiet"],
    }.items():
        page.get_by_role("group", name="Which locks").get_by_role("button", name=tab).click()
        expect(rows(page)).to_have_text(found)


def test_of_many_locks_only_the_visible_ones_are_in_the_page(page, server, url):
    keys = [f"many:{number:04}" for number in range(700)]
    with closing(open_store(url, StoreOptions(Client("", "host-1", 1)))) as store:
        store.open()
        for key in keys:
            store.execute(Acquire(key, key, "worker-7", 600.0, Client("", "host-1", 1)))
    page.goto(server.url)
    expect(page.get_by_text("700 locks")).to_be_visible()
    grid = page.get_by_role("grid", name="Locks")
    expect(grid).to_have_attribute("aria-rowcount", "701")
    assert page.locator(".row").count() < 60
    grid.evaluate("grid => grid.scrollTop = grid.scrollHeight")
    expect(row(page, keys[-1])).to_be_visible()
    expect(row(page, keys[0])).to_have_count(0)
    assert page.locator(".row").count() < 60


def test_a_lock_has_its_queue_and_its_history(page, server):
    doing = {"operation": True}
    acquire(server, "pull:model", "node-1", **doing)
    acquire(server, "pull:model", "node-2", wait=True, **doing)
    acquire(server, "pull:model", "node-3", wait=True, **doing)
    release(server, "pull:model", "node-1", outcome={"succeeded": False, "text": "disk full"}, terms=doing)
    acquire(server, "pull:model", "node-4", wait=True, **doing)
    page.goto(f"{server.url}/#/lock/{quote('pull:model')}")
    expect(page.get_by_role("heading", name="pull:model")).to_be_visible()
    expect(page.locator(".title .chip")).to_have_text("operation")
    queue = page.locator(".panel", has=page.get_by_role("heading", name="Queue"))
    expect(queue.locator("tbody td:nth-child(2)")).to_have_text(["node-3", "node-4"])
    expect(queue.locator("svg.waits rect")).to_have_count(2)
    history = page.locator(".panel", has=page.get_by_role("heading", name="History"))
    kinds = ["queued", "handed over", "failed", "queued", "queued", "granted"]
    expect(history.locator("tbody td.kind")).to_have_text(kinds)
    expect(history.locator("tbody tr[data-kind=failed] td.reason")).to_have_text("disk full")
    expect(history.locator("svg .mark")).to_have_count(len(kinds))
    expect(history.locator("svg .lease[data-end=failed]")).to_have_count(1)
    expect(history.locator("svg .lease[data-end=held]")).to_have_count(1)
    release(server, "pull:model", "node-2", outcome={"succeeded": True, "text": "1"}, terms=doing)
    expect(history.locator("tbody td.kind").first).to_have_text("completed")
    expect(page.get_by_text("Nobody holds it.")).to_be_visible()


def test_keys_with_strange_characters_have_a_page(page, server):
    for key in ("a/b?c#d%2Fe &+", "工作流:日历", "..."):
        acquire(server, key, "worker-7")
        page.goto(f"{server.url}/#/locks")
        page.get_by_role("link", name=key, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(key)
        expect(page.get_by_role("cell", name="worker-7")).to_be_visible()


def test_events_come_live_and_can_be_filtered_and_held(page, server):
    page.goto(f"{server.url}/#/events")
    expect(page.get_by_role("heading", name="Nothing has happened yet")).to_be_visible()
    expect(page.locator("#light")).to_have_text("live")
    for name in ("one", "two"):
        acquire(server, f"pull:{name}", operation=True)
    expect(rows(page)).to_have_text(["pull:two", "pull:one"])
    page.get_by_label("Only keys that begin with").fill("pull:o")
    expect(rows(page)).to_have_text(["pull:one"])
    page.get_by_label("Only keys that begin with").fill("")
    page.get_by_role("button", name="Pause").click()
    acquire(server, "pull:three", operation=True)
    expect(page.get_by_text("Paused, 1 new")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_text(["pull:three", "pull:two", "pull:one"])
    page.reload()  # what happened before is read again
    expect(rows(page)).to_have_text(["pull:three", "pull:two", "pull:one"])


def test_the_server_has_a_page_with_its_clients_and_who_holds_locks(page, server):
    acquire(server, "one")
    acquire(server, "two")
    signals = f"{server.url}/v1/signals?instance=abc&host=host-1&pid=4242"
    with closing(urllib.request.urlopen(signals, timeout=ENOUGH)) as stream:
        stream.readline()
        page.goto(f"{server.url}/#/server")
        processes = page.locator(".panel", has=page.get_by_role("heading", name="Processes"))
        expect(processes.locator("tbody td")).to_have_text(
            ["host-1:4242", "worker-7", "2", re.compile("s$"), "connected"]
        )
        clients = page.locator(".panel", has=page.get_by_role("heading", name="Connected clients"))
        expect(clients.locator("tbody td").first).to_have_text("host-1:4242")
        expect(page.get_by_text("sqlite, durable")).to_be_visible()


# Doing.


def test_a_break_says_what_it_does_does_it_and_is_in_the_history(page, server):
    acquire(server, "nightly", "worker-7")
    acquire(server, "nightly", "worker-8", wait=True)
    page.goto(f"{server.url}/#/lock/nightly")
    page.get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("worker-7 on host-1, pid 4242, loses it")
    expect(dialog).to_contain_text("worker-8, first of 1 waiting, gets it next")
    dialog.get_by_role("button", name="Force-release").click()
    expect(dialog.get_by_label("Reason")).to_be_focused()  # without one nothing is done
    dialog.get_by_label("Reason").fill("worker-7 hangs")
    dialog.get_by_label("Your name").fill("ada")
    dialog.get_by_role("button", name="Force-release").click()
    expect(dialog.get_by_role("status")).to_have_text(
        "worker-7 no longer holds nightly. It was handed to worker-8."
    )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    broken = page.locator("tr[data-kind=broken] td.text")
    expect(broken).to_have_text(["worker-7", "ada", "worker-7 hangs"])
    expect(page.locator("svg .mark[data-kind=broken]")).to_have_count(1)
    expect(page.get_by_role("cell", name="worker-8 not claimed yet")).to_be_visible()


def test_a_break_does_nothing_to_who_got_the_lock_meanwhile(page, server):
    acquire(server, "nightly", "worker-7")
    acquire(server, "nightly", "worker-8", wait=True)
    page.goto(f"{server.url}/#/lock/nightly")
    page.get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("worker-7 hangs")
    release(server, "nightly", "worker-7")
    acquire(server, "nightly", "worker-8")
    expect(dialog.get_by_role("alert")).to_contain_text("worker-7 does not hold it any more")
    dialog.get_by_role("button", name="Force-release").click()
    expect(dialog.get_by_role("heading")).to_have_text("Nothing was done")
    page.keyboard.press("Escape")
    expect(page.get_by_role("cell", name="worker-8", exact=True)).to_be_visible()
    expect(page.locator("tr[data-kind=broken]")).to_have_count(0)


def test_one_of_several_holders_is_broken_and_a_semaphore_resized(page, server):
    for number in range(2):
        acquire(server, "gpu", f"trainer-{number}", mode="permits", permits=3)
    page.goto(f"{server.url}/#/lock/gpu")
    expect(page.locator(".title .chip")).to_have_text("semaphore, 2 of 3 taken")
    page.get_by_role("row", name="trainer-1").get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 other holder keeps its lease")
    dialog.get_by_label("Reason").fill("too hot")
    dialog.get_by_role("button", name="Force-release").click()
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".title .chip")).to_have_text("semaphore, 1 of 3 taken")
    expect(page.get_by_role("cell", name="trainer-0", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resize…").click()
    dialog.get_by_label("Permits").fill("5")
    dialog.get_by_role("button", name="Resize").click()
    expect(dialog.get_by_role("status")).to_have_text("gpu has 5 permits now; before, 3.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".title .chip")).to_have_text("semaphore, 1 of 5 taken")
    expect(page.locator("tr[data-kind=resized]")).to_have_count(1)


def test_all_of_it_can_be_done_by_keyboard(page, server):
    for number in range(3):
        acquire(server, f"build:{number}")
    page.goto(server.url)
    expect(rows(page)).to_have_count(3)
    press = page.keyboard.press
    press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("build")
    press("Enter")  # from the search into the list
    press("j")
    press("j")
    press("k")
    expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-key", "build:1")
    press("b")
    expect(page.get_by_role("dialog")).to_contain_text("Force-release this lock?")
    press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("build:1")
    press("Escape")  # back to the same list, at the same row
    expect(page.get_by_role("searchbox")).to_have_value("build")
    expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-key", "build:1")
    press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard")
    press("Escape")
    press("4")
    expect(page.get_by_role("grid", name="Events")).to_be_visible()
    press("1")
    expect(page.get_by_role("grid", name="Locks")).to_be_visible()
    press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_light_and_dark_follow_the_system(page, server):
    page.goto(server.url)
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
