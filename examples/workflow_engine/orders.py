"""What is ordered, and whether the tables add up to it in the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nodes import steps

from holdfast import keys

if TYPE_CHECKING:
    from database import Database

CUSTOMERS = 400

Orders = dict[str, dict[str, Any]]  # what is to be done, by the key of its workflow


def make(number: int, printers: int) -> Orders:
    """Make some orders. Each run has keys of its own: work that has ended is not begun again."""
    run = f"{time.time():.0f}"
    return {
        keys.workflow(f"{run}-{n + 1}"): {
            "customer": n % CUSTOMERS,
            "items": ["cup", "plate", "spoon"],
            "price": 10 + n % 7,
            "printer": n % printers,
        }
        for n in range(number)
    }


def prefix(orders: Orders) -> str:
    """Return what the keys of these orders begin with."""
    return next(iter(orders)).rpartition("-")[0] + "-"


def mistakes(db: Database, orders: Orders) -> list[str]:
    """Compare what the tables say with what was ordered, and return every difference in words."""
    with db.transaction():
        steps_done = db.run("SELECT step, count(*) FROM engine_steps GROUP BY step")
        accounts = db.run("SELECT customer, reserved, packed, charged, notified FROM engine_accounts")
        printers = db.run("SELECT printer, labels FROM engine_printers")
    done = dict(steps_done)
    asked = {key for workflow, order in orders.items() for key, *_ in steps(workflow, order)}
    found = [f"{step} was done {done.get(step, 0)} times" for step in asked if done.get(step) != 1]
    found += [f"{step} was done, and never asked for" for step in done.keys() - asked]
    for customer, *account in accounts:
        mine = [order for order in orders.values() if order["customer"] == customer]
        items = sum(len(order["items"]) for order in mine)
        right = [len(mine), items, sum(order["price"] for order in mine), len(mine)]
        if account != right:
            found.append(f"account {customer} says {account}, and should say {right}")
    for printer, labels in printers:
        right_number = sum(order["printer"] == printer for order in orders.values())
        if labels != right_number:
            found.append(f"printer {printer} has printed {labels} labels, and should have {right_number}")
    return found
