"""The dashboard's views of work and of instances: what is seen there, and what can be done."""

import json
import re

import pytest

from tests.e2e.browsing import expect, row, rows, sign_in, token
from tests.e2e.fleet import fleet_at
from tests.e2e.serving import served
from tests.e2e.test_dashboard_access import HOSTILE


@pytest.fixture
def fleet(server):
    with fleet_at(server.url) as fleet:
        yield fleet


def card(page, name):
    return page.locator(".card", has=page.get_by_role("link", name=name, exact=True))


def panel(page, name):
    return page.locator(".panel", has=page.get_by_role("heading", name=name, exact=True))


def fact(page, name):
    return page.locator(".facts div", has=page.get_by_text(name, exact=True)).locator("dd")


# Work.


def test_work_appears_is_taken_and_goes_while_one_looks(page, server, fleet):
    page.goto(f"{server.url}/#/work")
    expect(page.locator("#light")).to_have_text("live")
    expect(page.get_by_role("heading", name="Nothing is to be done")).to_be_visible()
    worker = fleet.join("worker-1")
    fleet.offer("report:1", "report:2", max_tries=3)
    expect(rows(page)).to_have_text(["report:1", "report:2"])
    expect(row(page, "report:1").locator(".state")).to_have_text("offered")
    one, two = fleet.claim(worker, "report", limit=2)
    expect(row(page, "report:1").locator(".state")).to_have_text("assigned")
    expect(row(page, "report:1").locator(".who")).to_have_text("worker-1")
    expect(row(page, "report:1").locator(".tries")).to_have_text("1 of 3")
    fleet.finish(one, "completed", "4")
    expect(row(page, "report:1")).to_have_count(0)
    fleet.finish(two, "failed", "disk full")
    expect(row(page, "report:2").locator(".state")).to_have_text("failed")
    expect(row(page, "report:2").locator(".text")).to_have_text("disk full")
    page.get_by_role("button", name="Completed").click()
    expect(rows(page)).to_have_text(["report:1"])


def test_types_are_counted_and_choose_what_is_shown(page, server, fleet):
    worker = fleet.join("worker-1")
    fleet.offer("mail:1", "mail:2", "mail:3", "report:1", "plain")
    for work in fleet.claim(worker, "mail", limit=2):
        if work.key == "mail:1":
            fleet.finish(work, "failed", "no route to host")
    page.goto(f"{server.url}/#/work")
    types = page.get_by_role("group", name="Types of work").get_by_role("button")
    expect(types).to_have_count(3)
    expect(types.first).to_contain_text("1 assigned1 offered1 failed")
    types.first.click()
    expect(rows(page)).to_have_text(["mail:1", "mail:2", "mail:3"])
    page.get_by_role("group", name="Which work").get_by_role("button", name="Failed").click()
    expect(rows(page)).to_have_text(["mail:1"])
    page.reload()  # the choice is in the address
    expect(rows(page)).to_have_text(["mail:1"])
    page.get_by_role("button", name="Clear filters").first.click()
    page.get_by_role("button", name="Open").click()
    page.get_by_label("Instance", exact=True).select_option("worker-1")
    expect(rows(page)).to_have_text(["mail:1", "mail:2"])
    page.get_by_role("button", name="Clear filters").first.click()
    page.get_by_role("searchbox").fill("no route")
    expect(rows(page)).to_have_text(["mail:1"])
    page.get_by_role("button", name="Clear filters").first.click()
    page.get_by_role("button", name=re.compile("^no type")).click()
    expect(rows(page)).to_have_text(["plain"])


def test_one_piece_of_work_has_its_data_result_lease_and_history(page, server, fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", data={"month": "11"}, max_tries=3)
    page.goto(f"{server.url}/#/work")
    page.get_by_role("link", name="report:1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("report:1")
    expect(page.locator(".title .badge")).to_have_text("offered")
    expect(panel(page, "Data").locator("pre")).to_contain_text('"month": "11"')
    (work,) = fleet.claim(worker, "report")
    expect(page.locator(".title .badge")).to_have_text("assigned")
    expect(fact(page, "Instance")).to_have_text("worker-1")
    expect(fact(page, "Tries")).to_have_text("1 of 3")
    expect(fact(page, "Token")).to_have_text(str(work.token))
    expect(page.get_by_text("until the lease ends, unless it is renewed.")).to_be_visible()
    fleet.finish(work, "failed", "disk full", retry=600.0)
    expect(page.locator(".title .badge")).to_have_text("offered")
    expect(page.get_by_text(re.compile("to be claimed in"))).to_be_visible()
    expect(page.locator("tr[data-kind=failed] td.reason")).to_have_text("disk full")
    expect(page.locator("svg .lease[data-end=failed]")).to_have_count(1)
    page.get_by_role("link", name="Its lock").click()
    expect(page).to_have_url(re.compile("#/lock/report%3A1"))
    page.get_by_role("link", name="Its work").click()
    expect(page.locator(".title .badge")).to_have_text("offered")


def test_what_failed_is_offered_again_with_other_data(page, server, fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1", data={"n": 1}, max_tries=1)
    (work,) = fleet.claim(worker, "report")
    fleet.finish(work, "failed", "disk full")
    page.goto(f"{server.url}/#/work/report%3A1")
    page.get_by_role("button", name="Offer again…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It failed after 1 try.")
    data = dialog.get_by_label("Data, as JSON")
    assert json.loads(data.input_value()) == {"n": 1}
    data.fill("{")
    dialog.get_by_role("button", name="Offer again").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The data is no JSON")
    data.fill('{"n": 2}')
    dialog.get_by_role("button", name="Offer again").click()
    expect(dialog.get_by_role("status")).to_have_text("report:1 is offered.")
    page.keyboard.press("Escape")
    expect(page.locator(".title .badge")).to_have_text("offered")
    (work,) = fleet.claim(worker, "report")
    assert (json.loads(work.data), work.tries) == ({"n": 2}, 1)
    expect(page.get_by_role("button", name="Offer again…")).to_be_hidden()


def test_work_is_forgotten_after_a_question(page, server, fleet):
    fleet.offer("report:1", "report:2")
    page.goto(f"{server.url}/#/work/report%3A1")
    page.get_by_role("button", name="Forget…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nobody will do it.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".title .badge")).to_have_text("offered")
    page.get_by_role("button", name="Forget…").click()
    dialog.get_by_role("button", name="Forget", exact=True).click()
    expect(dialog.get_by_role("status")).to_have_text("report:1 is forgotten.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="There is no such work")).to_be_visible()
    page.keyboard.press("Escape")
    expect(rows(page)).to_have_text(["report:2"])


def test_work_is_taken_away_by_breaking_its_lock(page, server, fleet):
    worker, other = fleet.join("worker-1"), fleet.join("worker-2")
    fleet.offer("report:1")
    (work,) = fleet.claim(worker, "report")
    page.goto(f"{server.url}/#/work/report%3A1")
    page.get_by_role("button", name="Break…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("it hangs")
    dialog.get_by_role("button", name="Force-release").click()
    expect(dialog.get_by_role("status")).to_contain_text("no longer holds report:1")
    page.keyboard.press("Escape")
    expect(page.locator("tr[data-kind=broken] td.reason")).to_have_text("it hangs")
    expect(page.get_by_role("button", name="Break…")).to_be_hidden()
    fleet.finish(work, "completed")  # too late: it is refused, and the work is to be had again
    expect(page.locator(".title .badge")).to_have_text("offered")
    (again,) = fleet.claim(other, "report")
    assert again.token > work.token
    expect(fact(page, "Instance")).to_have_text("worker-2")


def test_work_is_offered_and_all_of_it_done_by_keyboard(page, server, fleet):
    worker = fleet.join("worker-1")
    fleet.offer("report:1")
    (work,) = fleet.claim(worker, "report")
    fleet.finish(work, "failed", "disk full")
    page.goto(f"{server.url}/#/locks")
    press = page.keyboard.press
    press("2")
    expect(rows(page)).to_have_text(["report:1"])
    press("o")  # nothing is selected: a new one
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Key")).to_be_focused()
    page.keyboard.type("mail:1")
    press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("mail:1 is offered.")
    press("Escape")
    expect(rows(page)).to_have_text(["mail:1", "report:1"])
    press("j")
    press("j")
    expect(page.locator(".row[aria-selected=true]")).to_have_attribute("data-key", "report:1")
    press("o")
    expect(dialog).to_contain_text("Offer this work again?")
    press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("report:1 is offered.")
    press("Escape")
    expect(row(page, "report:1").locator(".state")).to_have_text("offered")
    press("f")
    expect(dialog).to_contain_text("Forget this work?")
    press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("report:1 is forgotten.")
    press("Escape")
    expect(rows(page)).to_have_text(["mail:1"])
    press("3")
    expect(card(page, "worker-1")).to_be_visible()
    press("j")
    expect(page.get_by_role("link", name="worker-1")).to_be_focused()


# Instances.


def test_instances_come_work_and_go_while_one_looks(page, server, fleet):
    page.goto(f"{server.url}/#/instances")
    expect(page.get_by_role("heading", name="Nobody has joined")).to_be_visible()
    worker = fleet.join("worker-1", version="1.4.2")
    expect(card(page, "worker-1").locator(".badge")).to_have_text("alive")
    expect(card(page, "worker-1").locator(".about")).to_have_text(
        re.compile(r"^host-1:4242 · 1\.4\.2 · there for \d+ s$")
    )
    expect(card(page, "worker-1")).to_contain_text("Waits for work.")
    fleet.offer(*(f"report:{number}" for number in range(3)))
    one, *_ = fleet.claim(worker, "report", limit=3)
    expect(card(page, "worker-1").locator(".taken")).to_have_text("3 of 4")
    expect(card(page, "worker-1").locator(".parts [data-taken]")).to_have_count(3)
    expect(card(page, "worker-1").locator("li a")).to_have_text(["report:0", "report:1", "report:2"])
    expect(page.get_by_text("3 of 4 places taken")).to_be_visible()
    fleet.finish(one, "completed")
    expect(card(page, "worker-1").locator("li a")).to_have_text(["report:1", "report:2"])
    fleet.drain(worker)
    expect(card(page, "worker-1").locator(".badge")).to_have_text("draining")
    fleet.leave(worker)
    expect(card(page, "worker-1")).to_have_count(0)
    page.get_by_role("button", name="Left or died").click()
    expect(card(page, "worker-1").locator(".badge")).to_have_text("left")


def test_who_died_with_work_is_told_from_who_left(page, server, fleet):
    fleet.offer("report:1")
    fleet.claim(fleet.join("worker-1", ttl=4.0), "report")
    fleet.join("worker-2")
    page.goto(f"{server.url}/#/instances?show=all")
    expect(card(page, "worker-2").locator(".badge")).to_have_text("alive")
    expect(card(page, "worker-1").locator(".badge")).to_have_text("dead")
    expect(page.get_by_role("link", name=re.compile("^worker-"))).to_have_text(["worker-2", "worker-1"])
    card(page, "worker-1").get_by_role("link", name="worker-1").click()  # what it has, or had
    expect(rows(page)).to_have_text(["report:1"])


def test_owners_that_are_instances_go_by_their_names(page, server, fleet):
    page.goto(server.url)
    fleet.offer("report:1")
    fleet.claim(fleet.join("worker-1"), "report")
    expect(row(page, "report:1").locator(".owner")).to_have_text("worker-1")
    page.goto(f"{server.url}/#/events")
    expect(page.locator(".row:not([hidden]) .kind")).to_have_text(["joined"])
    page.get_by_role("link", name=re.compile("^instance:")).click()
    expect(card(page, "worker-1")).to_be_visible()


# Others.


def test_hostile_names_data_and_errors_are_shown_as_text(page, server, fleet):
    worker = fleet.join(HOSTILE, id="id-1")
    fleet.offer(f"{HOSTILE}:1", data={HOSTILE: HOSTILE})
    (work,) = fleet.claim(worker, HOSTILE)
    page.goto(f"{server.url}/#/instances")
    expect(card(page, HOSTILE)).to_be_visible()
    fleet.finish(work, "failed", f"{HOSTILE}\u202e")
    page.goto(f"{server.url}/#/work")
    expect(rows(page)).to_have_text([f"{HOSTILE}:1"])
    expect(page.locator(".row:not([hidden]) .text")).to_have_text(f"{HOSTILE}\\u202e")
    page.get_by_role("link", name=f"{HOSTILE}:1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{HOSTILE}:1")
    expect(panel(page, "Data").locator("pre")).to_contain_text("<img src=x")
    expect(panel(page, "Error").locator("pre")).to_have_text(f"{HOSTILE}\\u202e")
    page.get_by_role("button", name="Offer again…").click()
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    assert page.locator("img, script:not([src])").count() == 0
    assert page.title() != "1"


def test_who_may_only_look_is_offered_nothing_to_do(page, url):
    secret = token(url, "grafana", "observe:*")
    with fleet_at(url) as fleet:
        worker = fleet.join("worker-1")
        fleet.offer("report:1", "report:2")
        (work,) = fleet.claim(worker, "report")
        fleet.finish(work, "failed", "disk full")
        with served("--url", url, "--log-level", "error") as server:
            sign_in(page, server, secret)
            page.keyboard.press("2")
            expect(rows(page)).to_have_text(["report:1", "report:2"])
            page.keyboard.press("j")
            for key in "ofb":
                page.keyboard.press(key)
            expect(page.get_by_role("dialog")).to_be_hidden()
            expect(page.get_by_role("button", name="Offer…", exact=True)).to_have_count(0)
            page.get_by_role("link", name="report:1").click()
            expect(page.locator(".title .badge")).to_have_text("failed")
            for name in ("Offer again…", "Forget…", "Break…"):
                expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_a_part_of_the_work_is_all_that_some_see(page, url):
    secret = token(url, "ci", "observe:mail:*", "acquire:mail:*")
    with fleet_at(url) as fleet:
        fleet.offer("mail:1", "secret:1")
        fleet.join("worker-1")
        with served("--url", url, "--log-level", "error") as server:
            sign_in(page, server, secret)
            page.keyboard.press("2")
            expect(rows(page)).to_have_text(["mail:1"])
            expect(page.get_by_role("group", name="Types of work").get_by_role("button")).to_have_count(1)
            page.goto(f"{server.url}/#/work/secret%3A1")
            expect(page.get_by_role("heading", name="The server did not show this work")).to_be_visible()
            page.keyboard.press("3")
            expect(page.get_by_role("heading", name="Nobody has joined")).to_be_visible()
