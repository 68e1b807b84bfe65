"""What the page about the proof says is what is there; what a run has to show, and what if it fails."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from proof import faults, goals
from proof import run as run_module
from proof.__main__ import STORES, main
from proof.checkers.order.rules import RULES
from proof.faults import NotHealthy
from proof.faults.nemesis import Nemesis
from proof.goals import FULL, QUICK, missed
from proof.histories.records import Call, History, Injected, Run, Verdict, read
from proof.run import replay_command

PAGE = " ".join((Path(__file__).parents[2] / "docs/concepts/proof.md").read_text().split())


@pytest.mark.parametrize("name", [fault.name for fault in faults.ALL])
def test_the_page_names_every_fault(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_the_page_names_every_rule(name: str) -> None:
    said = PAGE.lower()
    assert all(word in said for word in name.split()), name


@pytest.mark.parametrize("store", STORES)
def test_a_run_tells_how_to_have_it_again(store: str) -> None:
    assert replay_command(store, 7, 40.0, quick=True) == (
        f"make proof STORES={store} SEED=7 PROOF_SECONDS=40 PROOF=--quick"
    )


def test_a_folder_that_is_not_the_usual_one_is_named(tmp_path: Path) -> None:
    assert replay_command("sqlite", 7, 840.0, quick=False, options="--folder 'my runs'") == (
        "make proof STORES=sqlite SEED=7 PROOF_SECONDS=840 PROOF='--folder '\"'\"'my runs'\"'\"''"
    )
    assert (
        replay_command("sqlite", 7, 840.0, quick=False) == "make proof STORES=sqlite SEED=7 PROOF_SECONDS=840"
    )


# Goals.


def test_a_shorter_run_has_to_show_less() -> None:
    some = {
        "kinds of faults": 12,
        "updates lost without a fence": 1,
        "calls that were passed on": 1_000,
        "refusals by the fence": 1,
        "refusals by the resource": 1,
    }
    whole = {"calls": 100_000, "% ok calls": 60, "takeovers": 1_000, "hand-overs entered": 50}
    half = {"calls": 50_000, "% ok calls": 60, "takeovers": 500, "hand-overs entered": 25}
    tenth = {"calls": 10_000, "% ok calls": 60, "takeovers": 100, "hand-overs entered": 5}
    assert FULL.of(FULL.seconds) == whole | some
    assert FULL.of(FULL.seconds * 2) == FULL.of(FULL.seconds)
    assert FULL.of(FULL.seconds / 2) == half | some
    assert FULL.of(FULL.seconds / 10) == tenth
    assert QUICK.of(QUICK.seconds)["kinds of faults"] == 8


def long_history(**settings: object) -> tuple[History, Verdict]:
    """A history that has reached its goals, but for what depends on the settings."""
    run = Run("sqlite", 1, 0.0, seconds=FULL.seconds, settings=settings)
    faults = [Injected(f"fault {n}", "x", 0.0, 1.0) for n in range(12)]
    figures = {"takeovers": 1e6, "entered by the hand-over": 50.0, "bare_lost": 3.0}
    verdict = Verdict("order", checked={"tokens rise": 5}, figures=figures)
    calls = [
        Call("w", n, "update", f"{kind}:0", "o", 0.0, 1.0, "refused", error="FencedOff: too late")
        for n, kind in enumerate(("fenced", "raised"))
    ]
    calls += [Call("w", n, "try", "plain:0", "o", 0.0, 1.0, "ok", by="v") for n in range(100_000)]
    return History(run, calls, faults=faults), verdict


def test_goals_that_are_reached_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "CI", False)
    history, verdict = long_history(impossible={"full disk": "missing: no room"})
    assert missed(FULL, history, verdict) == []
    monkeypatch.setattr(goals, "CI", True)
    assert missed(FULL, history, verdict) == ["full disk: missing: no room"]
    other = long_history(impossible={"kill database": "the store is a file"})
    assert missed(FULL, *other) == []


def test_a_full_run_in_which_nobody_was_refused_or_a_rule_had_nothing_to_do_is_not_enough() -> None:
    history, verdict = long_history()
    del history.calls[:2]
    history.calls += [replace(call, outcome="refused") for call in history.calls[:70_000]]
    verdict.checked["beliefs fit"] = 0
    assert missed(FULL, history, verdict) == [
        "not enough % ok calls: 58 of 60",
        "not enough refusals by the fence: 0 of 1",
        "not enough refusals by the resource: 0 of 1",
        "never applied: beliefs fit",
    ]
    history.run.seconds = 40.0
    assert missed(QUICK, history, verdict) == []


# When something goes wrong with the run itself.


def test_an_earlier_history_is_moved_aside(tmp_path: Path) -> None:
    folder = tmp_path / "sqlite-7"
    for text in ("first", "second", "third"):
        run_module._set_aside(folder)
        folder.mkdir()
        (folder / "run.json").write_text(text)
    kept = {path.name: (path / "run.json").read_text() for path in tmp_path.iterdir()}
    assert kept == {"sqlite-7": "third", "sqlite-7.1": "first", "sqlite-7.2": "second"}


def test_a_run_that_does_not_come_to_its_end_is_written_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(nemesis: Nemesis, seconds: float) -> None:
        time.sleep(seconds)
        nemesis.injected.append(Injected("kill client", "somebody", 0.0, 1.0))
        raise NotHealthy("somebody ended, and no fault has killed it")

    monkeypatch.setattr(Nemesis, "run", run)
    result = run_module.run("sqlite", 1, 2.0, tmp_path / "run", quick=True, say=print)
    assert not result.held
    assert [(each.rule, each.text) for each in result.verdicts[0].violations] == [
        ("the run comes to its end", "the run: somebody ended, and no fault has killed it")
    ]
    assert read(tmp_path / "run").calls == result.history.calls
    assert result.history.calls
    assert result.history.audit
    assert [fault.fault for fault in result.history.faults] == ["kill client"]
    assert "somebody ended" in result.page.read_text()


def test_a_store_that_cannot_be_run_fails_and_the_others_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = []

    def run(store: str, *_: object, **__: object) -> None:
        began.append(store)
        raise FileNotFoundError(f"there is no {store}")

    monkeypatch.setattr("proof.__main__.run", run)
    assert main(["--seed", "7", "--quick", "--folder", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert began == list(STORES)
    assert "there is no mariadb" in said.err
    assert (
        f"Again: {replay_command('mariadb', 7, 40, quick=True, options=f'--folder {tmp_path}')}" in said.out
    )
    assert "0 passed, 3 failed" in said.out


def test_a_store_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--stores", "sqlite,oracle"])
    assert "there is no store oracle: sqlite, postgres, mariadb" in capsys.readouterr().err
