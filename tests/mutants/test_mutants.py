"""Mutants do not rot: `make mutants` shows that they are caught, and this that they can still be planted."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from proof.mutants.checks import NOT_EVEN_RUNS, SEEDS, Lender, run_tests, simulate
from proof.mutants.copies import ROOT, CannotPlant, copy, plant, planted
from proof.mutants.databases import DATABASE_MUTANTS
from proof.mutants.layers import LAYERS, shown, store_of
from proof.mutants.mutant import SETTLING, Mutant
from proof.mutants.page import PAGE
from proof.mutants.run import LOCAL_MUTANTS, REMOTE_MUTANTS
from proof.mutants.traps import STORE_RULES, TRAPS
from tests.servers import PostgresServer
from tests.servers.fixtures import require

ALL = LOCAL_MUTANTS + REMOTE_MUTANTS
TWENTY_TWO = range(1, 23)


@functools.cache
def suite() -> str:
    """Return the text of the conformance suite."""
    modules = (ROOT / "src/holdfast/testing/conformance").glob("*.py")
    return "\n".join(path.read_text("utf-8") for path in modules)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Mutant) -> None:
    plant(mutant, ROOT / "src", write=False)


def test_mutants_have_names_of_their_own() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL)


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_names_the_check_that_must_fail(mutant: Mutant) -> None:
    """Either a test that exists, or a seed that is known to be fine without it."""
    assert bool(mutant.test) != (mutant.seed is not None)
    if mutant.seed is not None:
        assert mutant.seed < SEEDS[mutant.store]
        return
    file, *_, name = mutant.test.partition("[")[0].split("::")
    assert f"def {name}(" in (ROOT / file).read_text("utf-8") or f"def {name}(" in suite()


def test_planting_changes_one_copy_and_no_other(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in ALL if mutant.file == SETTLING)
    healthy = copy(tmp_path)
    before = (healthy / "holdfast" / mutant.file).read_bytes()
    with planted(mutant, healthy) as source:
        assert (source / "holdfast" / mutant.file).read_bytes() != before
        assert (healthy / "holdfast" / mutant.file).read_bytes() == before
        client = "holdfast/client/sync/client.py"
        assert (source / client).samefile(healthy / client)
        stale = list((source / "holdfast" / mutant.file).parent.glob("__pycache__/settlement.*"))
        assert stale == []
    assert not source.exists()


def test_a_check_that_passes_catches_nothing_and_one_that_does_not_run_is_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--an-option=of-a-plugin")  # of the run that this test is part of
    healthy, lender = copy(tmp_path), Lender()
    fine = "tests/unit/test_backoff.py"
    assert run_tests(healthy, [fine], lender) is None
    assert simulate(healthy, "memory", 0) is None
    nonsense = Mutant("nonsense", "", "core/backoff.py", (("from __future__", "from nowhere"),), fine)
    with planted(nonsense, healthy) as source, pytest.raises(CannotPlant):
        run_tests(source, [fine], lender)


def test_a_server_is_lent_and_outlives_the_tests_that_use_it(tmp_path: Path) -> None:
    require("postgres")
    healthy, lender = copy(tmp_path), Lender()
    test = next(
        mutant.test for mutant in DATABASE_MUTANTS if mutant.name.startswith("postgres: the fast path")
    )
    try:
        lender.lend("postgres")
        (server,) = lender._all
        assert isinstance(server, PostgresServer)
        transactions = "SELECT pg_current_xact_id()::text::bigint"
        ((before,),) = server.execute(transactions)
        for _ in range(2):
            assert run_tests(healthy, [test], lender) is None
        ((after,),) = server.execute(transactions)
        assert after > before + 5  # to look is one
        assert server.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test_%'") == []
    finally:
        lender.close()
    assert not server.is_running


@pytest.mark.parametrize(
    "output",
    [
        "E   NameError: name 'nothing' is not defined",
        "E   AttributeError: 'NoneType' object has no attribute 'token'",
        "E   StoreError: the server answered with an error that holdfast does not expect (1064: ...)",
    ],
)
def test_what_does_not_even_run_is_known(output: str) -> None:
    assert NOT_EVEN_RUNS.search(f"FAILED tests/x.py::test_y\n{output}\n")


# The page.


def test_every_trap_of_the_design_is_planted() -> None:
    assert list(TRAPS) == list(TWENTY_TWO)
    assert [number for number in TRAPS if not any(number in mutant.traps for mutant in ALL)] == []
    assert {number for mutant in ALL for number in mutant.traps} <= set(TRAPS)


def test_the_table_shows_mutants_of_their_traps() -> None:
    known = {mutant.name: mutant for mutant in ALL}
    for number, trap in TRAPS.items():
        assert trap.shown
        assert [name for name in trap.shown if number not in known[name].traps] == []
    assert [name for rule in STORE_RULES for name in rule.mutants if name not in known] == []


def test_the_page_names_every_trap_with_its_mutants_and_what_is_not_planted() -> None:
    page = PAGE.read_text("utf-8")
    rows = {line.split(" | ")[0]: line for line in page.partition("## The traps")[2].splitlines()}
    for number, trap in TRAPS.items():
        row = rows[f"| {number}"]
        assert trap.title in row
        assert trap.unplanted in row
        assert [m.name for m in ALL if number in m.traps and f"`{m.name}`" not in row] == []


def test_the_page_names_every_rule_with_its_mutants_and_what_is_not_planted() -> None:
    rows = PAGE.read_text("utf-8").partition("## The rules for stores")[2].splitlines()
    for rule in STORE_RULES:
        (row,) = (row for row in rows if row.startswith(f"| {rule.title} |"))
        assert rule.unplanted in row
        assert [name for name in rule.mutants if f"`{name}`" not in row] == []
    ruled = {name for rule in STORE_RULES for name in rule.mutants}
    assert [mutant.name for mutant in ALL if "store rules" in mutant.trap and mutant.name not in ruled] == []


def test_the_page_says_of_every_mutant_in_the_table_which_layers_notice_it() -> None:
    """By its own check in any case. A question mark is a layer that was not asked yet."""
    page = PAGE.read_text("utf-8").partition("## The traps")[0]
    header = next(line for line in page.splitlines() if line.startswith("|"))
    columns = [cell.strip() for cell in header.strip("|").split("|")]
    for mutant in shown():
        (row,) = (line for line in page.splitlines() if f"| {mutant.name} |" in line)
        cells = dict(zip(columns, (cell.strip() for cell in row[1:-1].split("|")), strict=True))
        assert cells["its own check"] == "✓", row
        for layer in LAYERS:
            if layer.command(mutant, store_of(mutant)) is not None:
                assert cells.get(layer.name) in ("✓", "(✓)", "–"), (mutant.name, layer.name)
    assert f"There are {len(ALL)} of" in page.replace("\n", " ")
