"""What is said under each part: what is seen, and how it would look if it were broken."""

from __future__ import annotations

from proof.checkers.order.rules import RULES
from proof.report.figures import Figures
from proof.report.markup import Markup, element
from proof.report.spelling import counted, number

# What each rule says, by its name.
MEANINGS = {rule.name: f"{rule.says} ({rule.promise})" for rule in RULES}
MEANINGS["linearizable"] = "a single perfect lock could have given all these answers, in some order (P2)"


def explained(words: tuple[str, str]) -> Markup:
    """Return both, as one note."""
    seen, broken = words
    return element(
        "dl",
        element("dt", "What you see"),
        element("dd", flowing(seen)),
        element("dt", "If it were broken"),
        element("dd", flowing(broken)),
        class_="words",
    )


def flowing(text: str) -> str:
    """Return text that is laid out in lines here as one paragraph."""
    return " ".join(text.split())


PICTURE = (
    """Every chart has a scale of its own, and all of them and the lanes share the time. Where a database is
    down, answers stop and come back; what was under way just then is unknown. Takeovers go on all the
    time, because some turns walk away from their lease without giving it back, and because processes are
    killed or put to sleep.""",
    """Answers that do not come back after the last fault of a kind: something is stuck. No takeovers: leases
    do not end, or nothing was ever lost, and then the run shows little. Empty lanes: the fault was not at
    work. Two holders at once would not be seen here, but in the checks.""",
)
CHECKS = (
    """Each rule, and how many things it was applied to: a rule that was applied to nothing shows nothing.
    «order» follows the tokens, in the order of the store's own audit; «linear» is independent of that and
    looks for an order of all calls that a single perfect lock could have answered in this way.""",
    """A number in the last column, and the first cases in full at the top of the page, with keys, tokens and
    times. Undecided means that a checker gave up: that is not good enough either.""",
)
UPDATES = (
    """The same program three times: it takes a lock, reads a list, and writes it back with something added.
    With the fence in the transaction, with the token raised at the resource before it is read, and with
    nothing but the lock. The last two differ by nothing else: the same pauses, looks and transactions. Some
    of their turns sleep past their lease on purpose, as a program does that is stopped; others renew it,
    and come too late only by a fault. Refused by the guard itself means that the library, which looks at
    its own clock first, had nothing to say against it.""",
    """An acknowledged update lost in the first two lines, or none refused there: then nobody came too late,
    and the guard was not put to the test. If the third line loses nothing, the faults were too gentle to
    tell a fence from none.""",
)
CALLS = (
    """What programs asked of the library. Refused is an answer: held by somebody else, timed out, or not
    yours any more. Unknown is none: the process was killed, or the connection broke at the wrong moment.
    Afterwards the audit, which the database wrote in the same transaction as the change, tells what
    became of it.""",
    """Many calls that nothing can resolve: then the checkers would have to guess. Or no unknown ones at all:
    then the faults did not hit anything that was under way.""",
)
FAULTS = (
    """What was done, how often and for how long. In pairs means that another fault was at work at the same
    time.""",
    """A class without an injection, or with seconds that do not fit its name: then it was not the fault that
    it says.""",
)
NOT_SHOWN = """
    It is a sample. Violations that need a rarer schedule than any of these were not seen here; another
    seed may see more. The explorer and the simulation look elsewhere, and exhaustively only in small
    worlds.

    A lease alone excludes nobody who is paused: that is what the control shows. Only what is fenced is
    promised to survive that.

    All processes ran on one machine with one kernel and one boot-time clock. Real networks, disks and
    virtual machines fail in more ways than those in the lanes.

    Where a standby is promoted, it is a synchronous one. With asynchronous replication the newest grants
    can be lost; that is documented, and not tested here.

    The checkers see what was recorded, at the library's edge and in the database. What a program does
    with what it has read, after its lease was lost, is outside of both.

    These are no benchmarks: the recorder, the audit and the faults all cost time.
"""
INDEX = """
    Each line is one run of real processes against one store, with faults, from a seed. Takeovers are
    leases that ran out and were given to somebody else. Lost updates are acknowledged ones that are not
    there in the end: with a fence there must be none; the control is the same program without a fence,
    and shows that the faults were real. Each page has the picture of its run, the checks, and what all
    this does not show.
"""


def not_shown(figures: Figures) -> list[str]:
    """Return what nobody should read into this page."""
    said = [flowing(text) for text in NOT_SHOWN.split("\n\n")]
    if figures.excused:
        seconds = number(round(sum(one.ended - one.began for one in figures.excused)))
        what = ", ".join(sorted({excuse for one in figures.excused for excuse in one.excuses}))
        times = counted(len(figures.excused), "time")
        text = f"""Faults of a kind that takes back a promise were at work {times}, {seconds} s in all. Then,
            and for one ttl after, «{what}» was not judged: the documents say that it is not promised, as when
            a stepped clock of the database moves the ends of leases."""
        said.insert(2, flowing(text))
    if figures.run.store == "mariadb":
        said.append("This was MariaDB. What differs in MySQL was not run.")
        text = """The triggers of the audit empty the answer in which MariaDB otherwise tells the token, so
            here it was always asked for again. The shorter way is for the conformance suite."""
        said.append(flowing(text))
    return said
