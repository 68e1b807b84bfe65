"""Operations, deadlocks, semaphores and readers across processes that die, stand still and come late."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.faults.processes import PATIENCE, PATIENT, House, Worker, eventually
from tests.faults.sharing import Traffic, violations

KEY = "pull:model-7b"
HEARTBEATS_SELDOM = "Settings(heartbeat=1.0, claim=20.0, patience=60.0)"

# Nodes are threads or tasks, so that their process can be asked how they are. Every request is noted, and so
# is what each node has to say in the end. A node that is told to hang does so in the middle of its work.
NODES = f"""
    from holdfast.core.requests import Acquire, Queued

    locks.close()
    locks = Holdfast(url, settings={HEARTBEATS_SELDOM})
    requests, in_line, said, threads, go = [], set(), {{}}, [], threading.Event()

    def watched(client):
        execute = client._engine.store.execute

        def watching(request):
            requests.append([type(request).__name__, getattr(request, "owner", ""), time.monotonic()])
            answer = execute(request)
            if type(answer) is Queued and type(request) is Acquire:
                in_line.add(request.owner)
            return answer

        client._engine.store.execute = watching
        return client

    def write(name, line):
        with open(os.path.join(folder, name), "a") as file:
            file.write(json.dumps(line) + "\\n")

    def has_done(owner):
        write("done", owner)
        return {{"by": owner}}

    def operate(owner, how, **options):
        with locks.operation("pull", "model-7b", owner=owner, **options) as pull:
            if not pull.todo:
                said[owner] = pull.result
                return
            write("begun", owner)
            in_line.add(owner)
            if how == "hang":
                threading.Event().wait()
            if how == "fail":
                raise RuntimeError("disk full")
            if how == "wait":
                go.wait()
            said[owner] = [[each.owner, each.error] for each in pull.failures]
            pull.succeed(has_done(owner))

    def run_once(owner):
        said[owner] = locks.run_once({KEY!r}, lambda: has_done(owner), owner=owner, ttl=60)

    async def run_once_async(client, owner):
        said[owner] = await client.run_once({KEY!r}, lambda: has_done(owner), owner=owner, ttl=60)

    async def all_tasks(owners):
        async with AsyncHoldfast(url, settings=locks.settings) as client:
            watched(client)
            await asyncio.gather(*(run_once_async(client, owner) for owner in owners))

    def start(function, *args, **options):
        def run():
            try:
                function(*args, **options)
            except HoldfastError as error:
                said[str(args[0])] = type(error).__name__
            except RuntimeError as error:
                said[str(args[0])] = str(error)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()

    def join():
        for thread in threads:
            thread.join()

    watched(locks)
"""


def nodes(house: House, number: int) -> list[Worker]:
    """Start processes that nodes can be started in."""
    workers = house.workers(number)
    for worker in workers:
        worker.do(f"folder = {str(house.folder)!r}")
        worker.do(NODES)
    return workers


def operate(worker: Worker, owner: str, how: str, **options: Any) -> None:
    """Start one node, and wait until it has begun or waits for its turn."""
    worker.do(f"start(operate, {owner!r}, {how!r}, **{options!r})")
    until_in_line(worker, 1)


def until_in_line(worker: Worker, number: int) -> None:
    """Wait until so many nodes of a process have begun, or wait for their turn."""
    eventually(lambda: worker.do("_ = len(in_line)") == number)


def written(house: House, name: str) -> list[Any]:
    """Return what nodes wrote down, in their order."""
    file = house.folder / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until_begun(house: House, number: int) -> None:
    eventually(lambda: len(written(house, "begun")) >= number)


def kinds(house: House, key: str = KEY) -> Counter[str]:
    """Return how often each kind of event happened to a key."""
    return Counter(event.kind for event in house.locks.history(key, limit=1000))


def test_100_nodes_want_one_operation_whose_first_three_doers_die_or_fail(house: House) -> None:
    """It is done once, by the fourth in line; 96 others are told what came of it, and ask for that once."""
    first, second, third, fourth, *crowd = nodes(house, 12)
    operate(first, "node-0", "hang", ttl=3)
    operate(second, "node-1", "hang", ttl=3)
    operate(third, "node-2", "fail", ttl=60)
    operate(fourth, "node-3", "go on", ttl=60)
    for place, worker in enumerate(crowd):
        owners = [f"node-{number}" for number in range(4 + 12 * place, 16 + 12 * place)]
        if place % 2:
            worker.do(f"start(asyncio.run, all_tasks({owners!r}))")
        else:
            worker.do(f"[start(run_once, owner) for owner in {owners!r}]")
    for worker in crowd:
        until_in_line(worker, 12)

    first.kill()
    until_begun(house, 2)
    second.kill()
    third.do("join()")
    assert third.do("_ = said") == {"node-2": "disk full"}
    fourth.do("join()")
    for worker in crowd:
        worker.do("join()")

    assert written(house, "begun") == ["node-0", "node-1", "node-2", "node-3"]
    assert written(house, "done") == ["node-3"]
    failures = fourth.do("_ = said")["node-3"]
    assert [owner for owner, _ in failures] == ["node-0", "node-1", "node-2"]
    assert failures[-1][1] == "RuntimeError: disk full"
    told = {owner: said for worker in crowd for owner, said in worker.do("_ = said").items()}
    assert told == {f"node-{number}": {"by": "node-3"} for number in range(4, 100)}
    happened = kinds(house)
    assert (happened["failed"], happened["completed"]) == (3, 1)

    asked: Counter[str] = Counter()
    for worker in (fourth, *crowd):
        requests = worker.do("_ = requests")
        asked.update(owner for kind, owner, _ in requests if kind == "Acquire")
        # Heartbeats are for all nodes of a client together, once in a second.
        beats = [at for kind, _, at in requests if kind == "Renew"]
        assert len(beats) <= 2 * (beats[-1] - beats[0]) + 5
        assert {kind for kind, _, _ in requests} <= {"Acquire", "Renew", "Release"}
    assert len(asked) == 97
    assert max(asked.values()) <= 1 + 3  # the first is to join the queue

    view = house.look(KEY)
    assert (view.state, view.waiting) == ("free", 0)
    late = crowd[0]
    late.do("start(run_once, 'late'); join()")  # it begins anew
    assert late.do("_ = said")["late"] == {"by": "late"}


@pytest.mark.parametrize("first", ["the old one", "the new one", "both"])
def test_a_doer_that_stood_still_past_its_lease_cannot_say_how_it_ended(house: House, first: str) -> None:
    """Both finish: one outcome is accepted, the other doer gets LeaseLost, and all learn the same."""
    sleeper, successor, crowd = nodes(house, 3)
    sleeper.do("with locks.hold('something else'): pass")
    sleeper.until_reachable()
    # Not renewed, so that it does not stop in the middle of a transaction: that would stop a whole file.
    operate(sleeper, "sleeper", "wait", ttl=4, renew=False)
    sleeper.stop()
    operate(successor, "successor", "wait", ttl=60)
    crowd.do("[start(run_once, f'node-{number}') for number in range(6)]")
    until_in_line(crowd, 6)
    until_begun(house, 2)
    # Whoever finds the row locked by a machine that stood still waits as well, but without a place at first.
    eventually(lambda: house.look(KEY).waiting == 6)
    sleeper.go_on()
    if first == "the new one":
        successor.do("go.set(); join()")
    sleeper.begin("go.set(); join()")
    if first == "the old one":
        sleeper.answer()
    successor.do("go.set(); join()")
    if first != "the old one":
        sleeper.answer()

    crowd.do("join()")
    assert written(house, "begun") == ["sleeper", "successor"]
    assert sorted(written(house, "done")) == ["sleeper", "successor"]
    assert sleeper.do("_ = said") == {"sleeper": "LeaseLost"}
    assert [owner for owner, _ in successor.do("_ = said")["successor"]] == ["sleeper"]
    said = crowd.do("_ = said")
    assert said == {f"node-{number}": {"by": "successor"} for number in range(6)}
    happened = kinds(house)
    assert (happened["failed"], happened["completed"]) == (1, 1)


CROSS = """
    try:
        other = locks.acquire({key!r}, ttl=60, timeout=60, owner={owner!r})
    except DeadlockDetected as error:
        lease.release()
        _ = ["deadlock", str(error), [[each.owner, each.key, each.pid] for each in error.cycle]]
    else:
        other.release()
        lease.release()
        _ = ["served"]
"""


def cross(house: House, workers: list[Worker], round: int, *, in_turn: bool) -> list[list[Any]]:
    """Let each process hold a lock and ask for the next one's; return what came of it.

    They would wait longer than we do.
    """
    keys = [f"key-{round}-{place}" for place in range(len(workers))]
    owners = [f"owner-{round}-{place}" for place in range(len(workers))]
    for worker, key, owner in zip(workers, keys, owners, strict=True):
        worker.acquire(key, ttl=60, owner=owner)
    for place, worker in enumerate(workers):
        key = keys[(place + 1) % len(keys)]
        worker.begin(CROSS.format(key=key, owner=owners[place]))
        if in_turn and place + 1 < len(workers):
            house.until_waiting(1, key)
    answers = [worker.answer() for worker in workers]
    victims = [answer for answer in answers if answer[0] == "deadlock"]
    assert len(victims) == 1, answers
    _, text, cycle = victims[0]
    assert sorted(cycle) == sorted(
        [owners[place], keys[(place + 1) % len(keys)], worker.pid] for place, worker in enumerate(workers)
    )
    assert cycle[0][2] == workers[answers.index(victims[0])].pid
    assert all(owner in text for owner in owners)
    assert sum(kinds(house, key)["deadlocked"] for key in keys) == 1
    return answers


@pytest.mark.parametrize("number", [2, 3])
def test_of_processes_that_wait_for_each_other_the_last_one_is_told(house: House, number: int) -> None:
    answers = cross(house, house.workers(number), 0, in_turn=True)
    assert [answer[0] for answer in answers] == ["served"] * (number - 1) + ["deadlock"]


def test_of_processes_that_close_a_circle_at_the_same_time_one_is_told(house: House) -> None:
    workers = house.workers(3)
    for round in range(10):
        cross(house, workers[: 2 + round % 2], round, in_turn=False)


def test_a_semaphore_never_lets_more_in_and_gets_back_the_permits_of_the_dead(house: House) -> None:
    """Three permits and eight processes, of which four are killed: two while they have all of them."""
    *busy, one, two = house.workers(8)
    traffic = Traffic(house, "gpu", busy, {"permits": 3}, {"permits": 3, "take": 2})
    for worker, take in ((one, 1), (two, 2)):
        traffic.admit(worker)
        traffic.enter(worker, ttl=4, permits=3, take=take)
    assert {holder.pid for holder in house.look("gpu").holders} == {one.pid, two.pid}
    one.kill()
    two.kill()
    traffic.until_all_had_turns()
    for worker in busy[:2]:  # anywhere: waiting, inside, on their way
        traffic.kill(worker)
        traffic.until_all_had_turns()
    traffic.stop()
    back = [
        house.locks.acquire("gpu", permits=3, timeout=PATIENCE, owner=f"owner-{number}")
        for number in range(3)
    ]
    assert house.locks.try_acquire("gpu", permits=3) is None
    for lease in back:
        lease.release()
    traffic.check(permits=3)


def test_a_writer_is_alone_whatever_happens_to_the_others(house: House) -> None:
    """Writers, readers and writers who become readers; a writer and a reader are killed while they are in."""
    *busy, writer, reader = house.workers(6)
    traffic = Traffic(house, "table", busy, {"mode": "shared"}, {"mode": "shared"}, {}, {"downgrade": True})
    for worker, options in ((writer, {}), (reader, {"mode": "shared"})):
        traffic.admit(worker)
        traffic.enter(worker, **options)
        traffic.kill(worker)
        traffic.until_all_had_turns()
    traffic.kill(busy[0])  # anywhere
    traffic.until_all_had_turns()
    traffic.stop()
    house.locks.acquire("table", timeout=PATIENCE).release()
    traffic.check()


def test_readers_of_several_processes_are_in_together_and_do_not_pass_a_writer(house: House) -> None:
    one, two, writer, late = house.workers(4, settings=PATIENT)
    one.acquire("table", ttl=60, mode="shared")
    two.acquire("table", ttl=4, mode="shared")
    writer.queue("table", ttl=60)
    house.until_waiting(1, "table")
    late.queue("table", ttl=60, mode="shared")
    house.until_waiting(2, "table")
    assert len(house.look("table").holders) == 2
    one.release()
    two.kill()  # and the last of them costs its ttl
    writer_token = writer.answer()
    assert not late.answered()
    writer.release()
    assert late.answer() > writer_token


def test_the_checker_of_stays_finds_what_should_not_be() -> None:
    def stay(token: int, since: float, left: float, mode: str, take: int = 1) -> list[dict[str, Any]]:
        entry = {"token": token, "since": since, "until": since + 9, "mode": mode, "take": take}
        return [entry, {"token": token, "left": left}]

    together = stay(1, 1.0, 3.0, "shared") + stay(2, 2.0, 4.0, "shared")
    assert violations(together + stay(3, 4.0, 5.0, "exclusive")) == []
    assert len(violations(together + stay(3, 3.5, 5.0, "exclusive"))) == 1
    assert len(violations(together + stay(1, 5.0, 6.0, "exclusive"))) == 1  # a token that was there before
    killed = stay(1, 1.0, 3.0, "exclusive")[:1]
    assert len(violations(killed + stay(2, 9.9, 11.0, "shared"))) == 1
    assert violations(killed + stay(2, 10.0, 11.0, "shared")) == []
    three = [line for token in (1, 2, 3) for line in stay(token, 1.0, 2.0, "permits")]
    assert violations(three, permits=3) == []
    assert len(violations(three, permits=2)) == 1
    assert len(violations(stay(1, 1.0, 2.0, "permits", 2) + stay(2, 1.5, 2.0, "permits", 2), permits=3)) == 1
