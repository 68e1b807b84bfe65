"""Counters, gauges and histograms, and how Prometheus wants to read them.

Small, because they are used several times in each request. They are meant for the event loop's thread; used
from others as well, they may lose a count, and nothing worse. A label has few values, all known to us:
should somebody be wrong about that, the rest is counted together as ``other``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

MOST_SERIES = 500  # of one instrument
OTHER = "other"

Labels = tuple[str, ...]

# From a request in memory to one that waited for a slow disk; and from there to people's patience.
LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAITS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Instrument:
    """What all have in common: a name, an explanation, labels."""

    kind = ""

    def __init__(self, name: str, help: str, labels: Labels = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels

    def lines(self) -> Iterator[str]:
        """Return the text that Prometheus reads."""
        yield f"# HELP {self.name} {_escape(self.help)}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        """Return a line for each series."""
        raise NotImplementedError

    def _shown(self, values: Labels, extra: str = "") -> str:
        pairs = [f'{name}="{_escape(value, quote=True)}"' for name, value in zip(self.labels, values)]  # noqa: B905
        text = ",".join([*pairs, extra] if extra else pairs)
        return f"{{{text}}}" if text else ""


class Counter(Instrument):
    """Something that happens again and again."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Labels = ()) -> None:
        super().__init__(name, help, labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count one more, or *by* more."""
        values = self.values
        if labels not in values and len(values) >= MOST_SERIES:
            labels = (OTHER,) * len(self.labels)
        values[labels] = values.get(labels, 0) + by

    def samples(self) -> Iterator[str]:
        """Return a line for each series."""
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{self._shown(labels)} {_number(value)}"


class Gauge(Instrument):
    """Something that goes up and down: set here, or asked for when somebody looks."""

    def __init__(self, name: str, help: str, labels: Labels = (), kind: str = "gauge") -> None:
        super().__init__(name, help, labels)
        self.kind = kind  # what is counted elsewhere is a counter, and asked for like this
        self.values: dict[Labels, float] = {} if labels else {(): 0}
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
        found: dict[Labels, float] = dict(self.values)
        for labels, read in self.read.items():
            try:
                value = read()
            except Exception:  # noqa: BLE001, S112  what cannot be had must not cost the others
                continue
            if value is not None:
                found[labels] = value
        for labels, value in sorted(found.items()):
            yield f"{self.name}{self._shown(labels)} {_number(value)}"


class Histogram(Instrument):
    """How long something took, or how large it was."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)
        self._blank = [0] * (len(self.bounds) + 1)
        self.counts: dict[Labels, list[int]] = {} if labels else {(): self._blank.copy()}
        self.sums: dict[Labels, float] = {} if labels else {(): 0.0}

    def observe(self, value: float, *labels: str) -> None:
        """Count one of this size."""
        counts = self.counts.get(labels)
        if counts is None:
            if len(self.counts) >= MOST_SERIES:
                labels = (OTHER,) * len(self.labels)
            counts = self.counts.setdefault(labels, self._blank.copy())
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] = self.sums.get(labels, 0.0) + value

    def samples(self) -> Iterator[str]:
        """Return the lines of each series: how many were not larger than each bound, their sum and number."""
        for labels, counts in sorted(self.counts.items()):
            total = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                total += count
                le = f'le="{bound}"'
                yield f"{self.name}_bucket{self._shown(labels, le)} {total}"
            yield f"{self.name}_sum{self._shown(labels)} {_number(self.sums.get(labels, 0.0))}"
            yield f"{self.name}_count{self._shown(labels)} {total}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text
