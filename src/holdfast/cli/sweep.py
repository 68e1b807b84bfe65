"""``holdfast sweep``: forget what is over."""

from __future__ import annotations

import argparse
import json

from holdfast.cli.options import Commands, add_json, add_url, url_of
from holdfast.core.data import as_dict
from holdfast.sync import Holdfast

DESCRIPTION = """\
Settle leases that ran out, remove dead waiters, and forget locks that nobody
has used for an hour, attempts that ended long ago, and history older than 30
days. Clients do this by themselves now and then; a store that nobody uses any
more can be tidied with it.
"""


def add(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "sweep",
        help="tidy the store",
        usage="holdfast sweep [options]",
        description=DESCRIPTION,
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=1000,
        metavar="N",
        help="how much to do in one transaction (default: 1000)",
    )
    add_json(parser, "write one JSON object")
    add_url(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Sweep, and print the totals."""
    with Holdfast(url_of(args)) as locks:
        swept = locks.sweep(limit=args.limit)
    counts = as_dict(swept)
    del counts["after"]
    if args.json:
        print(json.dumps(counts))
    else:
        print(
            f"settled {swept.expired} expired leases; removed {swept.tickets} dead waiters,"
            f" {swept.locks} unused locks, {swept.ended} ended attempts, {swept.history} old events"
        )
    return 0
