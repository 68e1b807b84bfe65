"""``holdfast sweep``: forget what is over."""

from __future__ import annotations

import argparse
import json

from holdfast.cli.options import Commands, add_json, add_url, patience
from holdfast.cli.output import count
from holdfast.cli.target import target
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
    with Holdfast(target(args), wait_for_store=patience(args)) as locks:
        swept = locks.sweep(limit=args.limit)
    counts = as_dict(swept)
    del counts["after"]
    if args.json:
        print(json.dumps(counts))
    else:
        print(
            f"settled {count(swept.expired, 'expired lease')}; removed {count(swept.tickets, 'dead waiter')},"
            f" {count(swept.locks, 'unused lock')}, {count(swept.ended, 'ended attempt')},"
            f" {count(swept.history, 'old event')}"
        )
    return 0
