"""Pairs through a lock server: 32 connections that are kept, each with one request under way.

The same load goes to servers that do nothing, to tell what the locks cost beside HTTP, and to etcd, which
keeps its locks on the disk too. All of them take turns in short rounds; so do one connection to each.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import bare_http, before, load, serving
from bench.load import CONNECTIONS, Load, middle, pairs
from bench.measure import folder
from bench.report import Line, microseconds, per_second
from bench.servers import KINDS, LEFT_OUT, not_here, running
from tests.servers.lock_server import LockServer

TITLE = f"Lock server: pairs over {CONNECTIONS} connections"
SQLITE = "SQLite, durable"
MOST_CPU = 60.0  # µs of a request
ONE = "server pairs, one connection, beside etcd"


def run(quick: bool) -> list[Line]:
    rounds, seconds = (2, 0.3) if quick else (7, 0.5)
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        servers, ours, absent = _start(stack, place, quick)
        lines = stack.enter_context(load.connected(servers))
        for each in lines.values():
            each.run(0.2)  # every key has its row
        before = _groups(ours[SQLITE])
        seen: dict[str, list[Load]] = {name: [] for name in lines}
        for _ in range(rounds):
            for name in random.sample(list(lines), len(lines)):  # nobody always follows the same one
                seen[name].append(lines[name].run(seconds))
        requests, groups = (now - then for now, then in zip(_groups(ours[SQLITE]), before, strict=True))
    named = {name: middle(loads) for name, loads in seen.items()}
    return [*_tell(named, absent), *_costs(named, requests / groups)]


def _start(
    stack: ExitStack, place: Path, quick: bool
) -> tuple[dict[str, Any], dict[str, LockServer], dict[str, str]]:
    """Start everything; return what to say where, our servers, and what is not here."""
    servers: dict[str, Any] = {}
    for kind in bare_http.KINDS:
        servers[kind] = (*stack.enter_context(bare_http.running(kind)), pairs)
    stores = {SQLITE: f"sqlite:///{place}/locks.db", "memory": "memory://"}
    absent = {}
    for database in KINDS:
        if missing := LEFT_OUT if quick else database.missing():
            absent[database.name] = missing
        else:
            stores[database.name] = stack.enter_context(running(database)).database()
    ours = {}
    for name, url in stores.items():
        ours[name] = stack.enter_context(serving.lock_server(url, place))
        servers[name] = (ours[name].port, ours[name].pid, pairs)
    guarded = f"sqlite:///{place}/guarded.db"
    header = f"Authorization: Bearer {serving.access_token(guarded)}"
    with_tokens = stack.enter_context(serving.lock_server(guarded, place))
    servers["tokens"] = (with_tokens.port, with_tokens.pid, lambda index: pairs(index, header))
    single = stack.enter_context(serving.lock_server(f"sqlite:///{place}/single.db", place))
    servers["one"] = (single.port, single.pid, pairs, 1)
    logged = stack.enter_context(serving.lock_server(f"sqlite:///{place}/logged.db", place, level="info"))
    servers["logged"] = (logged.port, logged.pid, pairs)
    if etcd := stack.enter_context(serving.etcd(place)):
        servers["etcd"] = (*etcd, partial(serving.etcd_pairs, etcd[0]))
        # A lock that nobody of the others may hold while it is not their turn.
        servers["etcd, one"] = (*etcd, lambda index: serving.etcd_pairs(etcd[0], CONNECTIONS + index), 1)
    else:
        absent["etcd"] = serving.NO_ETCD
    return servers, ours, absent


def _groups(server: LockServer) -> tuple[float, float]:
    return serving.metric(server, "commit_size_sum"), serving.metric(server, "commit_size_count")


def _tell(named: dict[str, Load], absent: dict[str, str]) -> list[Line]:
    ours, framework, raw = named[SQLITE], named["framework"], named["raw"]
    bare = f"bare framework {per_second(framework.rate)}, raw parser {per_second(raw.rate)}"
    lines = _beside_etcd(named) if "etcd" in named else [not_here("etcd", absent["etcd"])]
    lines += [
        Line(
            "… requests beside bare HTTP",
            per_second(ours.rate),
            bare,
            ours.rate / framework.rate,
            0.4,
            means="The same requests to the same HTTP layer with a handler that answers a constant. The raw"
            " parser is httptools, and a write for each message.",
            label="server requests beside bare HTTP",
        ),
        Line(
            "… with a log line for each request",
            per_second(named["logged"].rate),
            bare,
            named["logged"].rate / framework.rate,
            means="The same with the default `--log-level info`, into a file.",
        ),
    ]
    for name in ("memory", *(kind.name for kind in KINDS)):
        if name in absent:
            lines.append(not_here(f"pairs, {name}", absent[name]))
        else:
            lines.append(
                Line(
                    f"pairs, {name}",
                    per_second(named[name].rate / 2),
                    bare,
                    named[name].rate / framework.rate,
                    means="The same on another store; the ratio is of requests.",
                    label=f"server pairs, {name}",
                )
            )
    return lines


def _beside_etcd(named: dict[str, Load]) -> list[Line]:
    ours, guarded, one = (named[name].rate / 2 for name in (SQLITE, "tokens", "one"))
    etcd, etcd_one = (named[name].rate / 2 for name in ("etcd", "etcd, one"))
    return [
        Line(
            f"pairs, {SQLITE}",
            per_second(ours),
            f"etcd {per_second(etcd)}",
            ours / etcd,
            3.0,
            means="Acquire and release on distinct keys, each committed to the disk before it is answered;"
            " beside etcd's lock through its gateway, with a lease that was made before.",
            label="server pairs beside etcd",
            data={"holdfast": ours, "etcd": etcd},
            data_title=f"Durable pairs a second through a server, {CONNECTIONS} connections",
        ),
        Line(
            "… with access tokens",
            per_second(guarded),
            f"etcd {per_second(etcd)}",
            guarded / etcd,
            3.0,
            means="The same on a server that asks for an access token, and has it in each request.",
            label="server pairs with access tokens beside etcd",
        ),
        Line(
            "… one connection",
            per_second(one),
            f"etcd {per_second(etcd_one)}",
            one / etcd_one,
            before.ratio(ONE),
            means="One request under way at a time. The target is not to be slower than before.",
            label=ONE,
        ),
    ]


def _costs(named: dict[str, Load], group: float) -> list[Line]:
    ours, framework = named[SQLITE], named["framework"]
    return [
        Line(
            "requests in one commit",
            f"{group:.1f}",
            f"{CONNECTIONS} under way",
            means="The mean of `holdfast_commit_size`: what comes in while the disk is busy shares a commit.",
        ),
        *(
            Line(
                what,
                microseconds(named[name].server),
                f"bare framework {microseconds(framework.server)}",
                named[name].server * 1e6,
                MOST_CPU,
                least=False,
                unit="µs",
                means="Of all threads of the server together; other work on the machine disturbs it less.",
                label=label,
            )
            for what, name, label in (
                ("processor time of a request", SQLITE, "server: processor time of a request"),
                ("… with access tokens", "tokens", "server: processor time with access tokens"),
            )
        ),
        Line(
            "… of the generator",
            microseconds(ours.generator),
            f"{ours.busy:.0%} of a core; for the raw parser {named['raw'].busy:.0%}",
            means="What asking costs on the same machine. Near 100 % of a core it is what is measured.",
        ),
    ]
