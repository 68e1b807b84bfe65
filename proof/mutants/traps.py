"""The traps of the design and its rules for stores, and which mutants stand for each.

A mutant says itself which traps it falls into. Here is what each trap is about, which of its mutants every
layer of the tests is put to (see `layers`), and what of it cannot be planted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    title: str
    shown: tuple[str, ...]  # mutants that every layer is put to
    unplanted: str = ""  # what cannot be planted, and why


@dataclass(frozen=True)
class Rule:
    title: str
    mutants: tuple[str, ...]
    unplanted: str = ""


TRAPS = {
    1: Trap("assignments work from left to right", ("mysql: assignments in the wrong order",)),
    2: Trap(
        "the client's clock, a clock that stands still, whole seconds",
        (
            "trust counts from the answer",
            "servers: the client's clock decides",
            "sqlite: the clock counts whole seconds",
        ),
    ),
    3: Trap(
        "an upsert without a condition",
        ("an upsert takes a held lock", "postgres: an upsert takes a held lock"),
    ),
    4: Trap(
        "a partitioned table of locks",
        ("mysql: a key may have two rows",),
        "The partitions themselves: MySQL refuses them beside a unique key (error 1503). On PostgreSQL"
        " the usual fix, a longer key, does not even run: `ON CONFLICT (lock_key)` needs the short one"
        " (error 42P10).",
    ),
    5: Trap(
        "locking a row that is not there",
        ("servers: a row that was not there is not locked when it is",),
    ),
    6: Trap(
        "a transaction for as long as the lock is held",
        (
            "sqlite: a request keeps its transaction open",
            "servers: a request keeps its transaction open",
        ),
    ),
    7: Trap(
        "a subquery that was evaluated before the wait",
        (
            "the fast release does not look for waiters",
            "postgres: the fast release looks for waiters in their table",
        ),
    ),
    8: Trap(
        "release by less than the attempt",
        ("release by key alone", "mysql: release by attempt, whatever the token"),
    ),
    9: Trap("renewal by key alone", ("renewal by key alone", "postgres: renewal by key alone")),
    10: Trap(
        "tokens from sequences, or from a row that is deleted",
        (
            "a new lease keeps the token",
            "sqlite: a release deletes the row",
            "servers: sweeping does not raise the floor",
        ),
    ),
    11: Trap(
        "a fence that comes too late",
        ("a refused fence goes unheard", "a resource elsewhere takes an older token"),
        "A caller that reads before it fences: that is the caller's code. On MySQL it is refused"
        " (`servers: a fence does not mind an old snapshot`).",
    ),
    12: Trap(
        "a fence that does not lock, or locks too much",
        (
            "postgres: a fence locks nothing",
            "mysql: nobody looks for a fence",
        ),
    ),
    13: Trap(
        "notifications that nobody needs, or before the commit",
        ("postgres: a hand-over wakes everybody", "servers: the winner is woken before the commit"),
    ),
    14: Trap(
        "what has to reach the disk",
        (
            "postgres: a grant need not reach the disk",
            "sqlite: whoever asks for the disk does not get it",
        ),
    ),
    15: Trap(
        "SQLite's readers that become writers, and its busy file",
        ("sqlite: a reader becomes a writer", "sqlite: whoever finds the file busy gives up"),
    ),
    16: Trap(
        "keys that a collation merges",
        ("sqlite: keys are compared without regard to case", "mysql: keys are compared by a collation"),
        "A hash as identity: keys are kept whole everywhere, there is no place to put one.",
    ),
    17: Trap(
        "an answer that does not come",
        ("asking again is another attempt", "postgres: an answer that did not come says no"),
    ),
    18: Trap("a cancelled wait for the standby", ("postgres: a warning is no answer",)),
    19: Trap(
        "locks that hold on one node only (Galera)",
        ("mysql: the slow path does not lock the row",),
        "Several nodes at once: all but one are refused. On one node the shape of it can be planted: to read,"
        " and then to write by that, without a lock in between.",
    ),
    20: Trap(
        "a manager in memory without leases",
        (
            "a dead waiter is handed the lock",
            "memory: two worlds for one name",
            "memory: a dead holder holds for ever",
            "memory: success leaves the queue behind",
        ),
        "A mutex that is deleted while others wait for it: a shard has its own for good. Two worlds for"
        " one name are what comes of it, without the race.",
    ),
    21: Trap(
        "events that are tailed by their ids",
        ("postgres: events get their places as they are written", "mysql: who gives places is not alone"),
    ),
    22: Trap(
        "ticket numbers from anywhere but the locked row",
        (
            "ticket numbers come from a cached sequence",
            "postgres: ticket numbers come from a cached sequence",
        ),
    ),
}

STORE_RULES = (
    Rule(
        "the fast path takes only free rows",
        (
            "the fast path takes expired rows",
            "postgres: the fast path takes expired rows",
            "mysql: the fast path takes expired rows",
        ),
    ),
    Rule(
        "functions are for whom they were granted, and nobody needs them",
        ("postgres: everybody may call the functions", "postgres: the functions are needed"),
    ),
    Rule(
        "a refusal locks no row",
        ("postgres: a refusal locks the row", "servers: a refusal takes the slow path"),
    ),
    Rule(
        "waiters are counted on the row, while it is locked",
        (
            "waiters are miscounted",
            "postgres: a hand-over does not count waiters down",
            "mysql: a hand-over does not count waiters down",
        ),
    ),
    Rule(
        "a sweep locks what it deletes, and only what was idle for long",
        (
            "sweeping deletes held rows",
            "mysql: a sweep does not lock what it deletes",
            "servers: a sweep deletes rows as soon as they are free",
        ),
    ),
    Rule(
        "the end is computed after the wait",
        (
            "postgres: the end is computed before the wait",
            "postgres: the clock stands still while a row is waited for",
            "mysql: the clock stands still while a row is waited for",
            "mysql: a server whose clock stands still is good enough",
        ),
    ),
    Rule(
        "a release deletes no row, and a sweep raises the floor first",
        (
            "sqlite: a release deletes the row",
            "sweeping does not raise the floor",
            "servers: sweeping does not raise the floor",
            "mysql: a new row does not know the floor",
        ),
        "Raising the floor in the transaction that deletes, and not before: whoever makes the row anew"
        " in the instant between gets the time as its token, which is lower only if the clock went back"
        " as well.",
    ),
    Rule(
        "only what delays nobody is committed lazily",
        (
            "postgres: a grant need not reach the disk",
            "postgres: a renewal need not reach the disk",
            "servers: a grant by the slow path need not reach the disk",
            "servers: the outcome of an operation need not reach the disk",
            "servers: a break need not reach the disk",
            "servers: a withdrawal need not reach the disk",
            "servers: a hand-over that tells a token need not reach the disk",
            "postgres: a hand-over need not reach the disk",
            "postgres: a release waits for the disk",
        ),
    ),
    Rule(
        "functions of ours are for who was granted them, and nobody needs them",
        (
            "postgres: everybody may call the functions",
            "postgres: everybody may call the functions for semaphores",
            "postgres: the functions are needed",
            "postgres: without the functions for semaphores there are none for plain locks",
        ),
    ),
    Rule(
        "a fence locks the lease, lets renewals pass, and knows its tables",
        (
            "postgres: a fence locks nothing",
            "mysql: a fence locks nothing",
            "postgres: a fence keeps its own lease from being renewed",
            "servers: a fence does not mind an old snapshot",
            "servers: tables of another store will do",
        ),
    ),
    Rule(
        "a release in a transaction hands nothing over, and is renewed until it is gone",
        (
            "servers: a release in a transaction hands over",
            "a release in a transaction is not renewed until it is gone",
        ),
    ),
    Rule(
        "who listens on MySQL looks and waits in one statement",
        ("mysql: the listener sleeps without looking",),
        "A KILL QUERY for somebody else: it is sent to whoever holds the listener's named lock, and"
        " there is no number in between that could be out of date.",
    ),
    Rule(
        "the first insert is a plain one",
        ("mysql: a key may have two rows", "servers: a row that was not there is not locked when it is"),
        "INSERT IGNORE: keys are checked to be short enough before, so nothing is cut, and a row that is"
        " there already is refused either way. It was tried, and no test of MySQL's suite and rows"
        " notices it.",
    ),
    Rule(
        "the default owner is random",
        ("the default owner is a name and a number",),
    ),
    Rule(
        "each hold has an end of its own", ("one common end for all holds", "asking again shortens the hold")
    ),
)
