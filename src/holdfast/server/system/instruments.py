"""Counters, gauges and histograms, and how Prometheus wants to read them.

Small, because they are used several times in each request. They are meant for the event loop's thread; used
from others as well, they may lose a count, and nothing worse. A label has few values, all known to us:
should somebody be wrong about that, the rest is counted together as ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

MOST_SERIES = 500  # of one instrument
OTHER = "other"

Labels = tuple[str, ...]


class Instrument:
    """What all have in common: a name, an explanation, labels, and a number for each series."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def lines(self) -> Iterator[str]:
        """Return the text that Prometheus reads."""
        yield f"# HELP {self.name} {_escape(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        """Return a line for each series."""
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{self._shown(labels)} {_number(value)}"

    def _shown(self, values: Labels, extra: str = "") -> str:
        pairs = [f'{name}="{_escape(value, quote=True)}"' for name, value in zip(self.labels, values)]  # noqa: B905
        text = ",".join([*pairs, extra] if extra else pairs)
        return f"{{{text}}}" if text else ""


class Counter(Instrument):
    """Something that happens again and again."""

    kind = "counter"

    def add(self, *labels: str, by: float = 1) -> None:
        """Count one more, or *by* more."""
        values = self.values
        if labels not in values and len(values) >= MOST_SERIES:
            labels = (OTHER,) * len(self.labels)
        values[labels] = values.get(labels, 0) + by


class Gauge(Instrument):
    """Something that goes up and down: set here, or asked for when somebody looks."""

    def __init__(self, name: str, help: str, labels: Labels = (), kind: str = "gauge") -> None:
        super().__init__(name, help, labels)
        self.kind = kind  # what is counted elsewhere is a counter, and asked for like this
        self.read: dict[Labels, Callable[[], float | None]] = {}

    def set(self, value: float, *labels: str) -> None:
        """Say how many there are."""
        if labels in self.values or len(self.values) < MOST_SERIES:
            self.values[labels] = value

    def add(self, by: float, *labels: str) -> None:
        """Say how many more there are, or fewer."""
        self.set(self.values.get(labels, 0) + by, *labels)

    def tell(self, values: dict[Labels, float]) -> None:
        """Say how many there are of everything, and of nothing else."""
        self.values = dict(list(values.items())[:MOST_SERIES])

    def ask(self, read: Callable[[], float | None], *labels: str) -> None:
        """Ask *read* for the number when somebody looks; None if there is none to be had."""
        self.read[labels] = read
        self.values.pop(labels, None)

    def samples(self) -> Iterator[str]:
        """Return a line for each series."""
        for labels, read in self.read.items():
            self.values.pop(labels, None)
            with suppress(Exception):  # what cannot be had must not cost the others
                if (value := read()) is not None:
                    self.values[labels] = value
        yield from super().samples()


class Histogram(Instrument):
    """How long something took, or how large it was."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)
        self._blank = [0] * (len(self.bounds) + 1)
        self.counts: dict[Labels, list[int]] = {} if labels else {(): self._blank.copy()}

    def observe(self, value: float, *labels: str, times: int = 1) -> None:
        """Count one of this size, or some."""
        counts = self.counts.get(labels)
        if counts is None:
            if len(self.counts) >= MOST_SERIES:
                labels = (OTHER,) * len(self.labels)
            counts = self.counts.setdefault(labels, self._blank.copy())
        counts[bisect_left(self.bounds, value)] += times
        self.values[labels] = self.values.get(labels, 0.0) + value * times

    def samples(self) -> Iterator[str]:
        """Return the lines of each series: how many were not larger than each bound, their sum and number."""
        for labels, counts in sorted(self.counts.items()):  # the values are sums
            total = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                total += count
                le = f'le="{bound}"'
                yield f"{self.name}_bucket{self._shown(labels, le)} {total}"
            yield f"{self.name}_sum{self._shown(labels)} {_number(self.values.get(labels, 0.0))}"
            yield f"{self.name}_count{self._shown(labels)} {total}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text
