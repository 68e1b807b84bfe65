"""What a planted flaw is: a textual replacement in one file of ``src/holdfast``, and what must notice it.

Each text to be replaced must be there exactly once, so that a mutant cannot silently become no change at all.
*trap* names the rules it breaks: numbers are the traps of the design (see `traps`), P the promises, "store
rules" those for stores in databases, and the rest are sections of the protocol page.
"""

from __future__ import annotations

from dataclasses import dataclass

LOCK = "stores/memory/lock.py"
ACQUIRING = "stores/memory/locks.py"
RENEWING = "stores/memory/locks.py"
SETTLING = "stores/memory/settlement.py"
LEAVING = "stores/memory/locks.py"
CHANGING = "stores/memory/locks.py"
OPERATIONS = "stores/memory/settlement.py"
CIRCLES = "stores/memory/settlement.py"
FEED = "stores/memory/views.py"
SWEEPING = "stores/memory/settlement.py"
SQL = "stores/sqlite/statements.sql"
TICKETS = "stores/sql/rules/tickets.py"
SQL_SETTLING = "stores/sql/rules/settlement.py"
DECIDING = "stores/sql/rules/decisions.py"
BATCHES = "stores/sql/transactions/batches.py"
PLANS = "core/plans.py"
KEEPER = "core/keeper.py"
BASE = "stores/base.py"
FAMILY = "core/family.py"
DEADLOCKS = "core/deadlocks.py"
EVENTS = "core/events.py"

MEMORY_SUITE = "tests/conformance/test_memory.py::TestMemory"
SQLITE_SUITE = "tests/conformance/test_sqlite.py::TestSQLite"


@dataclass(frozen=True)
class Mutant:
    name: str
    trap: str
    file: str
    changes: tuple[tuple[str, str], ...]
    test: str = ""  # the one that must fail
    seed: int | None = None  # or that of the simulation which must find it

    @property
    def traps(self) -> tuple[int, ...]:
        """The numbers among the rules it breaks."""
        return tuple(int(rule) for rule in self.trap.split(", ") if rule.isdigit())

    @property
    def store(self) -> str:
        """The store that shows it: the one it is in, else the faster one."""
        return "sqlite" if "stores/sql" in self.file else "memory"
