"""The page of a run says what was found, and failures loudly; it needs nothing else, and obeys no text."""

from __future__ import annotations

import dataclasses
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proof.checkers.order.rules import RULES
from proof.histories.records import (
    History,
    Injected,
    Run,
    Verdict,
    Violation,
)
from proof.report import summary, write_index, write_report
from proof.report.example import example, verdicts
from proof.report.figures import count

HOSTILE = "</script></style></title></pre><script>alert(1)</script><img src=//evil onerror='x()'>\"'&"
HOSTILE += "\x1b[31m\u202e\ud800"
VOID = {"meta"}


class Page(HTMLParser):
    """What is on a page: its elements, its words, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []  # the element they are in, and the words
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and (not class_ or class_ in (attributes.get("class") or "").split())
        ]

    def read(self, tag: str = "") -> str:
        """Return the words a person sees, of elements of a kind, or of all."""
        shown = (
            words for where, words in self.words if where not in ("script", "style") and tag in ("", where)
        )
        return " ".join(" ".join(shown).split())


@cache
def calm() -> History:
    return example(seconds=60, injections=24)


def page(history: History, said: list[Verdict], folder: Path, **more: list[str]) -> Page:
    path = folder / "report.html"
    write_report(history, said, path, **more)
    return Page(path.read_text("utf-8"))


def test_the_page_says_the_verdict_the_rules_and_how_to_run_it_again(tmp_path: Path) -> None:
    history = calm()
    found = page(history, verdicts(history), tmp_path)
    assert f"{len(history.calls):,} operations" in found.read("h1")
    assert "0 violations, 0 undecided" in found.read("h1")
    assert "✓ held" in found.read("strong")
    assert history.run.replay in found.read("pre")
    words = found.read()
    for rule in RULES:
        assert rule.name in words
        assert rule.says in words
    for part in (
        "What this does not show",
        "If it were broken",
        "linearizable",
        "postgres 15.13",
        "2025-11-15",
    ):
        assert part in words
    assert "FAILED" not in words


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    history = calm()
    found = page(history, verdicts(history), tmp_path)
    for tag, attributes in found.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "image", "use")
        assert not {"src", "href", "action", "srcset", "xlink:href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    for forbidden in ("http:", "https:", "url(", "@import", "fetch(", "import("):
        assert forbidden not in found.text
    policies = [a["content"] for a in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert "default-src 'none'" in str(policies[0])


def test_every_injection_has_its_place_in_the_lane_of_its_class(tmp_path: Path) -> None:
    history = calm()
    found = page(history, verdicts(history), tmp_path)
    classes = {one.fault for one in history.faults}
    lanes = [str(a["aria-label"]).partition(":")[0] for a in found.all("div", "bars") if "aria-label" in a]
    assert sorted(lanes) == sorted(classes)
    bars = [
        a for a in found.all("i") if (a.get("title") or "").partition(" ")[2].partition(":")[0] in classes
    ]
    assert len(bars) == len(history.faults)
    assert sum(a.get("class") == "pair" for a in bars) == sum(one.pair != 0 for one in history.faults)
    figures = count(history, verdicts(history))
    first = min(history.faults, key=lambda one: one.began)
    left = 100 * (first.began - figures.began) / (figures.ended - figures.began)
    assert any(str(a["style"]).startswith(f"left:{left:.2f}%") for a in bars)


def test_pictures_have_words_for_who_does_not_see_them(tmp_path: Path) -> None:
    history = calm()
    found = page(history, verdicts(history), tmp_path)
    assert all(a.get("aria-label") for a in found.all("svg") + found.all("figure"))
    assert len(found.all("svg")) >= 4
    assert any(a.get("lang") == "en" for a in found.all("html"))
    assert "prefers-color-scheme: dark" in found.text


@pytest.mark.parametrize("words", ["violation", "undecided", "missed", "nothing", "lost"])
def test_what_did_not_hold_is_said_loudly_with_the_seed_and_the_command(words: str, tmp_path: Path) -> None:
    history = calm()
    said, missed, told = verdicts(history), [], ""
    if words == "violation":
        told = "token 7 was given to two"
        said = verdicts(history, Violation("tokens rise at the store", "plain:3", told))
    elif words == "undecided":
        said, told = verdicts(history, undecided=2), "2 undecided"
    elif words == "missed":
        missed, told = ["not enough takeovers: 7 of 1,000"], "not enough takeovers: 7 of 1,000"
    elif words == "nothing":
        said, told = [Verdict("order", checked={"tokens rise at the store": 0})], "nothing was checked"
    else:
        told = "1 acknowledged fenced update lost"
        stored = history.resources["fenced:1"]
        history = dataclasses.replace(history, resources={**history.resources, "fenced:1": stored[1:]})
    found = page(history, said, tmp_path, missed=missed)
    assert found.read("title").startswith("FAILED")
    assert "✕ FAILED:" in found.read("strong")
    assert f"FAILED with seed {history.run.seed}" in found.read("p")
    assert history.run.replay in found.read("pre")
    assert told in found.read()
    assert found.all("header", "failed")
    short = summary(history, said, missed=missed)
    assert short.startswith("FAILED")
    assert f"seed {history.run.seed}. Again: {history.run.replay}" in short
    assert told in short


def test_faults_that_could_not_be_had_are_said_with_the_reason(tmp_path: Path) -> None:
    """What the machine lacks is said loudly; what the store has no use for is only said."""
    calmer = calm()
    impossible = {"slow fsync": "missing: there is no C compiler", "kill database": "it is a file"}
    settings = {**calmer.run.settings, "impossible": impossible}
    history = dataclasses.replace(calmer, run=dataclasses.replace(calmer.run, settings=settings))
    found = page(history, verdicts(history), tmp_path)
    assert "missing: there is no C compiler" in found.read("b")
    assert "it is a file" in found.read("td")
    short = summary(history, verdicts(history))
    assert "MISSING    slow fsync: missing: there is no C compiler" in short
    assert "not here   kill database: it is a file" in short
    assert len(short.splitlines()) <= 25


def test_a_run_that_went_wrong_itself_is_told_before_all_that_may_follow_from_it(tmp_path: Path) -> None:
    history = calm()
    others = [Violation(rule.name, "plain:1", "follows") for rule in RULES]
    said = verdicts(history, *others, Violation("the run comes to its end", "", "the fleet: it did not stop"))
    short = summary(history, said)
    assert short.index("it did not stop") < short.index("follows")


def test_a_rule_that_was_applied_to_nothing_is_said_to_be_so(tmp_path: Path) -> None:
    history = calm()
    said = verdicts(history)
    said[0].checked["beliefs fit"] = 0
    assert "not exercised" in page(history, said, tmp_path).read("td")
    assert "not exercised: beliefs fit" in summary(history, said)


def test_nothing_in_a_history_becomes_markup(tmp_path: Path) -> None:
    history = example(seconds=20, injections=8)
    evil = HOSTILE
    history.run = dataclasses.replace(
        history.run, store=evil, replay=evil, versions={evil: evil}, settings={evil: evil}
    )
    history.calls = [
        dataclasses.replace(call, key=f"{call.key}{evil}", worker=evil + call.worker, error=evil)
        for call in history.calls
    ]
    history.calls.append(dataclasses.replace(history.calls[0], kind=evil))
    history.audit = [dataclasses.replace(row, key=f"{row.key}{evil}") for row in history.audit]
    history.trusts = [
        dataclasses.replace(each, key=f"{each.key}{evil}", worker=evil) for each in history.trusts
    ]
    history.resources = {f"{key}{evil}": values for key, values in history.resources.items()}
    history.faults = [
        dataclasses.replace(one, fault=f"{one.fault}{evil}", target=evil, detail=evil)
        for one in history.faults
    ]
    said = verdicts(history, Violation(f"rule{evil}", evil, f"{history.audit[50].token} {evil}"))
    said[1].figures[evil] = 1.0
    said[1].checker = f"linear{evil}"
    found = page(history, said, tmp_path)
    assert not found.all("script")
    assert not found.all("img")
    assert "alert(1)" in found.read("pre")
    assert all("evil" not in words for where, words in found.words if where == "style")
    short = summary(history, said)
    for text in (found.text, short):
        assert "\x1b" not in text
        assert "\u202e" not in text
    write_index([(history, said, tmp_path / "report.html")], tmp_path / "index.html")
    assert not Page((tmp_path / "index.html").read_text("utf-8")).all("script")


def test_the_summary_has_at_most_25_lines_however_much_there_is_to_say() -> None:
    history = example(seconds=20, injections=8)
    history.faults += [
        Injected(f"a fault with a rather long name {n}", "x", 5001.0, 5002.0) for n in range(90)
    ]
    broken = [Violation(f"rule {n}", "plain:1", "line\n" * 400) for n in range(30)]
    assert len(summary(history, verdicts(history, *broken, undecided=9)).splitlines()) <= 25
    calm_lines = summary(history, verdicts(history)).splitlines()
    assert len(calm_lines) <= 25
    assert calm_lines[-1].endswith(history.run.replay)


def test_a_long_run_is_a_small_page(tmp_path: Path) -> None:
    """Calls are counted, not drawn; what is told of violations and injections has bounds."""
    history = example(seconds=60, injections=24)
    moved = [
        dataclasses.replace(call, called=call.called + 840, returned=call.returned + 840)
        for call in history.calls
    ]
    history.calls = history.calls * 8 + moved
    history.asks *= 20
    history.faults = [
        dataclasses.replace(one, detail="x" * 2_000, began=one.began + n, ended=one.ended + n)
        for n in range(0, 840, 20)
        for one in history.faults
    ]
    broken = [Violation(f"rule {n % 25}", "plain:1", "y" * 20_000) for n in range(2_000)]
    path = tmp_path / "report.html"
    write_report(history, verdicts(history, *broken), path)
    assert len(history.faults) > 1_000
    assert path.stat().st_size < 1_000_000


def test_an_empty_history_has_a_page_too(tmp_path: Path) -> None:
    history = History(Run("sqlite", 1, began=10.0, replay="make proof SEED=1"))
    found = page(history, [], tmp_path)
    assert "nothing was checked" in found.read("h1")
    assert summary(history, []).startswith("FAILED: nothing was checked")


def test_the_index_has_a_row_for_each_run_and_the_way_to_its_page(tmp_path: Path) -> None:
    good, bad = (
        calm(),
        dataclasses.replace(calm(), run=dataclasses.replace(calm().run, store="maria db", seed=99)),
    )
    runs = [
        (good, verdicts(good), tmp_path / "postgres-7" / "report.html"),
        (
            bad,
            verdicts(bad, Violation("beliefs fit", "plain:0", "two")),
            tmp_path / "maria db#9" / "report.html",
        ),
    ]
    for history, said, path in runs:
        write_report(history, said, path)
    write_index(runs, tmp_path / "index.html")
    found = Page((tmp_path / "index.html").read_text("utf-8"))
    assert [a["href"] for a in found.all("a")] == ["postgres-7/report.html", "maria%20db%239/report.html"]
    assert "FAILED" in found.read("strong")
    assert "on 1 of 2 stores" in found.read("h1")
    assert "maria db FAILED with seed 99: 1 violation" in found.read("p")
    assert found.read("td").count(f"{len(good.calls):,}") == 2
    write_index(runs[:1], tmp_path / "index.html", missed=[["not enough calls: 1 of 2"]])
    assert "not enough calls: 1 of 2" in Page((tmp_path / "index.html").read_text("utf-8")).read()
    write_index(runs[:1], tmp_path / "index.html")
    found = Page((tmp_path / "index.html").read_text("utf-8"))
    assert "FAILED" not in found.read()
    assert "✓ held" in found.read("strong")
