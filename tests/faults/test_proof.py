"""What the page about the proof says is what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.proof import faults
from tests.faults.proof.__main__ import STORES, main
from tests.faults.proof.order.rules import RULES
from tests.faults.proof.run import FULL, replay_command

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


def test_a_shorter_run_has_to_show_less() -> None:
    assert FULL.of(FULL.seconds) == {"calls": 100_000, "takeovers": 1_000, "classes": 12, "bare_lost": 1}
    assert FULL.of(FULL.seconds * 2) == FULL.of(FULL.seconds)
    assert FULL.of(FULL.seconds / 10) == {"calls": 10_000, "takeovers": 100}


def test_a_store_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--stores", "sqlite,oracle"])
    assert "there is no store oracle: sqlite, postgres, mariadb" in capsys.readouterr().err
