"""The workflow: an order, from top to bottom of this file. Each function is a node.

A node has two parts. What comes before ``step.effect()`` takes its time, and may happen more than once: an
engine can die at any moment. What is inside happens in one transaction, exactly once. It has to be short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast import keys

if TYPE_CHECKING:
    from engine import Step

Node = Callable[["Step"], None]

NODES: dict[str, tuple[Node, str | None]] = {}  # in the order in which they run


def node(*, over: str | None = None) -> Callable[[Node], Node]:
    """Make a function the next node of the workflow: once, or once for each of ``order[over]``."""

    def register(function: Node) -> Node:
        NODES[function.__name__] = (function, over)
        return function

    return register


def steps(workflow: str, order: dict[str, Any]) -> Iterator[tuple[str, Node, int | None]]:
    """Return all that is to be done for an order, in turn: the key, the node, the iteration in a loop."""
    id = keys.parse(workflow).fields["id"]
    for name, (function, over) in NODES.items():
        if over is None:
            yield keys.node(id, name), function, None
        else:
            for iteration in range(len(order[over])):
                yield keys.iteration(id, name, iteration), function, iteration


@node()
def reserve(step: Step) -> None:
    step.work()
    with step.effect() as db:
        db.run(
            "UPDATE engine_accounts SET reserved = reserved + 1 WHERE customer = ?", step.order["customer"]
        )


@node(over="items")
def pack(step: Step) -> None:
    """A loop: each iteration is a step with a key and a record of its own. Who takes over goes on in it."""
    step.work()
    with step.effect() as db:
        db.run("UPDATE engine_accounts SET packed = packed + 1 WHERE customer = ?", step.order["customer"])


@node()
def label(step: Step) -> None:
    """Use something that other workflows use too: it has its own lock, and what is written relies on both.

    The number on the label is read, thought about, and written. Nobody else may do that meanwhile.
    """
    printer = step.order["printer"]
    with step.locks.hold(keys.resource("printer", printer)) as lease:
        step.work()
        with step.effect(lease) as db:
            ((labels,),) = db.run("SELECT labels FROM engine_printers WHERE printer = ?", printer)
            db.run("UPDATE engine_printers SET labels = ? WHERE printer = ?", labels + 1, printer)


@node()
def charge(step: Step) -> None:
    step.work()
    with step.effect() as db:
        price, customer = step.order["price"], step.order["customer"]
        db.run("UPDATE engine_accounts SET charged = charged + ? WHERE customer = ?", price, customer)


@node()
def notify(step: Step) -> None:
    """A mail cannot be fenced: it is sent at least once. Give the receiver ``step.key`` to know it by."""
    step.work()  # send(mail, idempotency_key=step.key)
    with step.effect() as db:
        db.run(
            "UPDATE engine_accounts SET notified = notified + 1 WHERE customer = ?", step.order["customer"]
        )
