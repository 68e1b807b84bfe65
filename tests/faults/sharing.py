"""Traffic on locks that several may have at once, and a checker of who was in together with whom.

Each thread takes one key again and again on terms of its own, and writes down in a file when it came in and
when it left, by the boot-time clock, which all processes of a machine share. A process that is killed leaves
an entry without an end: nobody may have had its place before the end of the lease that it had then.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.core.family import Terms, fits
from tests.faults.processes import TTL, House, Worker, eventually

TRAFFIC = f"""
    import random
    from holdfast.clock import boot_time

    going, turns, broken, threads = True, [], [], []

    def excepthook(args):
        broken.append("".join(traceback.format_exception(args.exc_value)))

    threading.excepthook = excepthook

    def note(*lines):  # in one piece, and with the kernel before anything else happens
        os.write(records, "".join(json.dumps(line) + "\\n" for line in lines).encode())

    def entry(lease, since, mode, take):
        until = lease._holding.kept.trusted_until
        return dict(token=lease.token, since=since, until=until, mode=mode, take=take)

    def exit(lease):
        return dict(token=lease.token, left=min(boot_time(), lease._holding.kept.trusted_until))

    def enter(key, ttl={TTL}, **options):
        lease = locks.acquire(key, ttl=ttl, **options)
        note(entry(lease, boot_time(), lease.mode, options.get("take", 1)))
        return lease

    def work(n, key, downgrade=False, **options):
        dice = random.Random(f"{{os.getpid()}} {{n}}")
        while going:
            lease = enter(key, **options)
            time.sleep(dice.random() * 0.004)
            try:
                if downgrade:
                    note(exit(lease), entry(lease, boot_time(), "shared", 1))
                    lease.downgrade()
                    time.sleep(dice.random() * 0.004)
                note(exit(lease))
                lease.release()
            except (LeaseLost, StoreError):
                pass
            turns[n] += 1

    def start(key, *all_options):
        for n, options in enumerate(all_options):
            turns.append(0)
            threads.append(threading.Thread(target=work, args=(n, key), kwargs=options, daemon=True))
            threads[-1].start()
"""


class Traffic:
    """Some processes at one key, each with a thread for every one of the *options*."""

    def __init__(self, house: House, key: str, workers: list[Worker], *options: dict[str, Any]) -> None:
        self._folder = house.folder
        self._key = key
        self.workers = workers
        for worker in workers:
            self.admit(worker)
            worker.do(f"start({key!r}, *{options!r})")
        self.until_all_had_turns()

    def admit(self, worker: Worker) -> None:
        """Have a worker write down what it does."""
        worker.do(TRAFFIC)
        path = str(self._folder / f"records-{worker.pid}")
        worker.do(f"records = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)")

    def enter(self, worker: Worker, **options: Any) -> None:
        """Have an admitted worker take the lock, and keep it as ``lease``."""
        worker.do(f"lease = enter({self._key!r}, **{options!r})")

    def kill(self, worker: Worker) -> None:
        """Kill a worker wherever it is."""
        worker.kill()
        if worker in self.workers:
            self.workers.remove(worker)

    def turns(self) -> list[int]:
        found = []
        for worker in self.workers:
            turns, broken = worker.do("_ = [turns, broken]")
            assert not broken, broken[0]
            found += turns
        return found

    def until_all_had_turns(self) -> None:
        """Wait until each thread has had a turn that began after this moment."""
        before = self.turns()
        eventually(lambda: all(now >= then + 2 for then, now in zip(before, self.turns(), strict=True)))

    def stop(self) -> None:
        for worker in self.workers:
            worker.do("going = False")
        for worker in self.workers:
            worker.do("[thread.join() for thread in threads]")

    def check(self, permits: int = 0) -> None:
        """Look at what all of them wrote down."""
        files = sorted(self._folder.glob("records-*"))
        lines = [json.loads(line) for file in files for line in _complete_lines(file)]
        assert not (wrong := violations(lines, permits)), "\n".join(wrong[:20])


def _complete_lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def violations(lines: list[dict[str, Any]], permits: int = 0) -> list[str]:
    """Return who should not have been in together, in words. Lines of one lease are in their order."""
    stays: list[list[Any]] = []  # since, until, terms, token
    inside: dict[int, int] = {}  # token: the place of its stay
    tokens: Counter[int] = Counter()
    for line in lines:
        token = line["token"]
        if "left" in line:
            stays[inside[token]][1] = line["left"]
            continue
        if token not in inside or line["mode"] != "shared":  # else it was downgraded
            tokens[token] += 1
        inside[token] = len(stays)
        stays.append([line["since"], line["until"], Terms(mode=line["mode"], take=line["take"]), token])
    wrong = [f"token {token} was granted {times} times" for token, times in tokens.items() if times > 1]
    moments = [(since, 1, place) for place, (since, _, _, _) in enumerate(stays)]
    moments += [(max(until, since), 0, place) for place, (since, until, _, _) in enumerate(stays)]
    present: dict[int, Terms] = {}
    for at, comes, place in sorted(moments):
        _, _, terms, token = stays[place]
        if not comes:
            present.pop(place, None)
            continue
        if not fits(terms, present.values(), permits):
            others = ", ".join(f"{stays[each][3]} ({stays[each][2].mode})" for each in present)
            wrong.append(f"{token} ({terms.mode}, {terms.take}) came in at {at:.6f} beside {others}")
        present[place] = terms
    return wrong
