"""Start worker processes together, let them run for a while, and collect what they return."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Ready = Callable[[], int]  # tells that we are set up; returns when to stop, in monotonic nanoseconds

_context = multiprocessing.get_context("fork")
_PATIENCE = 60.0


def together(work: Callable[..., Any], count: int, seconds: float, *args: Any) -> list[Any]:
    """Run ``work(index, ready, *args)`` in *count* processes, from the moment all of them are ready."""
    return mixed([(work, (index, *args)) for index in range(count)], seconds)


def mixed(jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]], seconds: float) -> list[Any]:
    """Run ``work(index, ready, *rest)`` for each (work, (index, *rest)), all at the same time."""
    lines, running = [], []
    for work, (index, *rest) in jobs:
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_run, args=(work, index, theirs, rest), daemon=True)
        process.start()
        theirs.close()
        lines.append(ours)
        running.append(process)
    try:
        for line in lines:
            _receive(line)
        stop = time.monotonic_ns() + int(seconds * 1e9)
        for line in lines:
            line.send(stop)
        results = [_receive(line) for line in lines]
        for process in running:
            process.join(10)
    finally:
        for process in running:
            if process.is_alive():
                process.kill()
    return results


@contextmanager
def meanwhile(work: Callable[..., Any], *args: Any) -> Iterator[tuple[Connection, Any]]:
    """Have a process that does ``work(line, *args)``: give the line to it and what it says first."""
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_tell_errors, args=(work, theirs, args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours, _receive(ours)
    finally:
        process.kill()
        process.join()
        ours.close()


def _run(work: Callable[..., Any], index: int, line: Connection, rest: list[Any]) -> None:
    def ready() -> int:
        line.send(None)
        return line.recv()

    try:
        line.send(work(index, ready, *rest))
    except BaseException as error:
        line.send(error)
        raise


def _tell_errors(work: Callable[..., Any], line: Connection, args: tuple[Any, ...]) -> None:
    try:
        work(line, *args)
    except BaseException as error:
        line.send(error)
        raise


def _receive(line: Connection) -> Any:
    if not line.poll(_PATIENCE):
        raise TimeoutError("a worker did not answer")
    answer = line.recv()
    if isinstance(answer, BaseException):
        raise answer
    return answer
