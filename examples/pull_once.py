"""Five nodes want one model. The first that pulls it is killed, the second fails, the third does it for all.

Nobody polls: four wait in a queue, each is asked in its turn, and once it is done everybody is told where the
model is. The killed one costs its ttl, because before that nobody can tell it from a slow one; the failed one
costs nothing, and asks again.

Run it: python examples/pull_once.py [postgresql://… | mysql://… | sqlite:///…]
"""

import logging
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast

logging.getLogger("holdfast").setLevel(logging.ERROR)

KEY = "pull:model-7b"
NODES = ("node-1", "node-2", "node-3", "node-4", "node-5")


def say(started: float, name: str, text: str) -> None:
    print(f"{time.time() - started:5.1f} s  {name}: {text}", flush=True)


def pull(name: str, model: Path) -> None:
    """Fetch the model; or what becomes of that."""
    if name == "node-1":
        time.sleep(60)  # a long transfer, of which it will not see the end
    if name == "node-2":
        raise ConnectionError("the mirror is down")
    time.sleep(0.5)
    part = model.with_suffix(f".{name}")
    part.write_text("weights")
    with model.with_suffix(".log").open("a") as log:
        log.write(f"{name}\n")
    part.replace(model)  # at once: whoever finds it, finds all of it


def node(name: str, url: str, folder: str, started: float) -> None:
    model = Path(folder, "model-7b")
    with Holdfast(url) as locks:
        while True:
            try:
                with locks.operation("pull", "model-7b", owner=name, ttl=2, timeout=60) as mine:
                    if mine.todo:
                        for failure in mine.failures:
                            say(started, name, f"is told of {failure}")
                        say(started, name, "is to do it")
                        if not model.exists():  # who had it before us may have died after the work
                            pull(name, model)
                        mine.succeed({"path": str(model), "by": name})
                        say(started, name, "has done it")
                say(started, name, f"has it: {mine.result}")
                return
            except ConnectionError as error:
                say(started, name, f"has failed ({error}), and asks again")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/locks.db"
        started = time.time()
        context = multiprocessing.get_context("spawn")
        nodes = [context.Process(target=node, args=(name, url, folder, started)) for name in NODES]
        with Holdfast(url) as locks:
            for waiting, process in enumerate(nodes):  # one after the other, so that their order is known
                process.start()
                while not (view := locks.inspect(KEY)) or not view.holder or view.waiting < waiting:
                    time.sleep(0.02)
            say(
                started,
                "you",
                f"{view.holder.owner} does it, {view.waiting} wait; kill -9 {view.holder.owner}",
            )
            nodes[0].kill()
            for process in nodes:
                process.join()
            print("\nwhat the store has recorded:")
            for event in locks.history(KEY):
                print(f"  {event.kind:<11}  {event.owner}  {event.reason or ''}".rstrip())
        written = Path(folder, "model-7b.log").read_text().split()
        assert written == ["node-3"], "it was to be pulled once, by the third"
        assert [process.exitcode for process in nodes] == [-9, 0, 0, 0, 0]


if __name__ == "__main__":
    main()
