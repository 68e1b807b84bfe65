"""The page about mutants: traps, the flaws that stand for them, and which layers notice each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proof.mutants.copies import ROOT
from proof.mutants.mutant import Mutant
from proof.mutants.traps import STORE_RULES, TRAPS

PAGE = ROOT / "docs" / "concepts" / "mutants.md"


@dataclass
class Result:
    verdict: Literal["caught", "missed", "fails", "hangs"]
    by: str
    took: float


SIGNS = {"caught": "✓", "missed": "–", "fails": "(✓)", "hangs": "hangs"}

INTRODUCTION = """\
# Mutants: would the tests notice?

A test that cannot fail proves nothing. So flaws are planted in the real code, one at a time: each is a
small change of one file, as somebody would make it by mistake, or as others have really made it. There are
{count} of them, and `make mutants` checks that each is caught. Each names the check that has to fail, a
test or a seed of the simulation; that check passes without the flaw, and takes a second or two with it. A
flaw that does not even run (a statement that the database does not understand, a name that Python does not)
does not count as caught.

This page is about those that come from experience. The *traps* are mistakes that were seen in systems like
this one, in libraries, and in what everybody believes about databases; each was reproduced on a real server
first. The *rules for stores* came out of attacks on this design. All other flaws are in `proof/mutants/`,
and what they are about is on the [protocol page](protocol.md).

## Which layer catches which

Every layer sees something that the others do not.

- ✓ caught by a check that failed
- (✓) noticed, because something broke that should not, but by no check that is about it
- – not noticed
- an empty cell: this layer does not run the code with the flaw

Each layer was run whole, or to its first failure. The last column is how long the fastest took to fail, in
seconds, on two cores that did other things as well.

"""

AFTERWARDS = """
The simulation and the exploration run the real plans on the reference store, and the simulation on SQLite's
statements too. Flaws in the statements for PostgreSQL and MySQL are for the conformance suite, and for the
comparison with the reference on random requests. What only shows while two transactions are open at once,
or a server is killed, is for tests that arrange just that. The table is made by `python -m
proof.mutants.layers`.
"""


def write_page(
    table: Mapping[str, Mapping[str, Result]], layers: Sequence[str], mutants: Sequence[Mutant]
) -> None:
    """Write the page. *table* has what is known, by mutant and layer."""
    used = [layer for layer in layers if any(layer in row for row in table.values())]
    lines = [INTRODUCTION.format(count=len(mutants))]
    lines += _row("", "flaw", *used, "seconds")
    lines += _row("--:", "---", *(":-:" for _ in used), "--:")
    for number, trap in TRAPS.items():
        for place, name in enumerate(trap.shown):
            row = table.get(name, {})
            signs = [SIGNS[row[layer].verdict] if layer in row else "" for layer in used]
            caught = [result.took for result in row.values() if result.verdict == "caught"]
            lines += _row(
                "" if place else f"[{number}](#the-traps)",
                name,
                *signs,
                f"{min(caught):.1f}" if caught else "?",
            )
    lines += [AFTERWARDS, "\n## The traps\n\n"]
    lines += _row("", "trap", "planted as") + _row("--:", "---", "---")
    for number, trap in TRAPS.items():
        planted = [f"`{mutant.name}`" for mutant in mutants if number in mutant.traps]
        note = f"<br>Not planted: {trap.unplanted}" if trap.unplanted else ""
        lines += _row(str(number), trap.title, ", ".join(planted) + note)
    lines += ["\n## The rules for stores\n\n"]
    lines += _row("rule", "planted as") + _row("---", "---")
    for rule in STORE_RULES:
        note = f"<br>Not planted: {rule.unplanted}" if rule.unplanted else ""
        lines += _row(rule.title, ", ".join(f"`{name}`" for name in rule.mutants) + note)
    PAGE.write_text("".join(lines), "utf-8")


def _row(*cells: str) -> list[str]:
    return [f"| {' | '.join(cells)} |\n"]
