"""Why a target is not met, by the title of its line: printed beside the verdict as long as it is not.

What is said of how long something takes was measured on two cores, each thing by itself.
"""

_INDEXES = (
    "our two statements take 1.8 times as long as the leanest, most of that for the indexes by owner and by"
    " expiry; the client adds half of them"
)
_NOT_DURABLE = "it keeps nothing on the disk, and ours waits for a flush"
_CLAIM_INDEXES = "a claim writes two tables with five indexes, the bare loop one table with one"
_CLAIM_ON_POSTGRES = (
    "the server takes 2.3 times as long for a piece of work as for the bare loop's: a claim writes two tables"
    " with seven indexes, the loop one with two"
)
_PERMITS = "a hand-over of a permit writes at least four rows, that of a plain lock two"
_IN_PYTHON = "parser, rights, limits, answer and statements are Python"
_SERVER = "one core is busy, and most of a request is Python: three to four times as much as bare HTTP is"
_ON_POSTGRES = (
    "two cores share what the clients take in Python, which is told below, and the server, which takes 1.3"
    " times as long as for the floor's: its row has one index where ours has four (key, token, owner, expiry)"
)
_ON_MARIADB = "driver and client are Python; what they take of the two cores is told below"
_IN_TASKS = "tasks and the event loop add a third to two thirds of what our statements take"
_TWO_CORES = "eight processes, and what they wait for, share two cores"
_HEARTBEATS = "heartbeats of those who wait are counted as well"

REASONS: dict[str, str] = {
    "… beside the leanest, distinct keys, normal": _INDEXES,
    "… beside the leanest, one key, normal": _INDEXES,
    "SQLite pair, async, distinct keys, normal": _IN_TASKS,
    "SQLite pair, async, one key, normal": _IN_TASKS,
    "SQLite hand-over: cross/s": _TWO_CORES,
    "SQLite hand-over: worst wait": _TWO_CORES,
    "SQLite: a pair, 1,000,000 idle locks": "a lock at random is on a page that nobody has read lately",
    "SQLite pair, async, distinct keys, full": "what waits for the disk is done in a thread, not on the loop",
    "memory pair": "166 calls of Python, of which the store has 50: plan, lease, owner, place, keeper",
    "PostgreSQL pair beside a bare loop": "more Python for a pair: plan, lease, keeper, pool",
    "PostgreSQL pair beside sqlalchemy-dlock": _NOT_DURABLE,
    "PostgreSQL pair, async": "each request goes to a thread and back",
    "PostgreSQL pairs, 8 processes": "two cores for eight processes and their server: Python takes its share",
    "PostgreSQL pairs, 8 tasks": "one process, so one core for all of its Python",
    "PostgreSQL contended: cross/s": _ON_POSTGRES,
    "PostgreSQL contended: cross/s beside tooz": _NOT_DURABLE,
    "PostgreSQL contended: cross/s beside python-redis-lock": _NOT_DURABLE,
    "PostgreSQL contended: cross/s beside redis-py": _NOT_DURABLE,
    "PostgreSQL contended: release → entry, p50": _ON_POSTGRES,
    "PostgreSQL contended: max/min share": _TWO_CORES,
    "MariaDB contended: max/min share": _TWO_CORES,
    "PostgreSQL contended: worst wait": f"{_TWO_CORES}: the floor waits nearly as long",
    "PostgreSQL contended: round trips per hand-over": _HEARTBEATS,
    "MariaDB pairs, 8 processes": "two cores for eight processes and their server: Python takes its share",
    "MariaDB contended: cross/s": _ON_MARIADB,
    "MariaDB contended: cross/s beside before": _ON_MARIADB,
    "MariaDB contended: cross/s beside python-redis-lock": _NOT_DURABLE,
    "MariaDB contended: cross/s beside redis-py": _NOT_DURABLE,
    "MariaDB contended: worst wait": _ON_MARIADB,
    "MariaDB contended: round trips per hand-over": f"join, hand-over, the listener's look; {_HEARTBEATS}",
    "SQLite semaphore: grants": _PERMITS,
    "PostgreSQL semaphore: grants": _PERMITS,
    "MariaDB semaphore: grants": _PERMITS,
    "MariaDB renewal: statements of a round": "a batch is six statements, sent in one text",
    **{
        f"SQLite: {instances} instances claim {batch} at a time": _CLAIM_INDEXES
        for instances in (1, 4, 16)
        for batch in (1, 10)
    },
    **{
        f"PostgreSQL: {instances} instances claim {batch} at a time": _CLAIM_ON_POSTGRES
        for instances in (1, 4, 16)
        for batch in (1, 10)
    },
    "server pairs beside etcd": _SERVER,
    "server requests beside bare HTTP": _IN_PYTHON,
    "server pairs with access tokens beside etcd": _SERVER,
    "server hand-over, SQLite, 1 server: p50": _IN_PYTHON,
    "server: processor time of a request": _IN_PYTHON,
    "server: processor time with access tokens": _IN_PYTHON,
}
