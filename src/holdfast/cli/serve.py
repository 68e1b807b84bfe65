"""``holdfast serve``: the lock server, with its dashboard."""

from __future__ import annotations

import argparse
import os
from typing import Any

from holdfast import errors
from holdfast.cli.options import add, add_store, url_of
from holdfast.cli.target import absolute
from holdfast.server.settings import CHOICES, PORT

DESCRIPTION = f"""\
Serve the locks of a store over HTTP, with live events and a dashboard: for
programs in other languages, for fleets that should not hold database
connections, and for people who want to see. By default on this machine only,
port {PORT}, with an SQLite file of yours.

Other machines are served only with access tokens: see 'holdfast token'.

Settings come from flags, then HOLDFAST_SERVER_... variables, then the file
named with --config, then the defaults. --print-config says what holds, and why.
Ctrl-C or SIGTERM ends it when what is under way is finished; SIGHUP reads
certificates and access tokens anew.
"""

EPILOG = """\
examples:
  holdfast serve
  holdfast serve --url postgresql://db.internal/app --host 0.0.0.0 \\
      --tls-cert server.pem --tls-key server.key
  holdfast serve --config /etc/holdfast.toml --print-config
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add_store(parser)

    def flag(name: str, text: str, **options: Any) -> None:
        parser.add_argument(f"--{name}", help=text, default=argparse.SUPPRESS, **options)

    add(parser, "--config FILE", "a TOML file with settings")
    flag("host", "where to listen (default: 127.0.0.1; 0.0.0.0 for all networks)", metavar="ADDRESS")
    flag("port", f"0 for any that is free (default: {PORT})", metavar="N")
    flag("tls-cert", "the certificate, to serve https://", metavar="FILE")
    flag("tls-key", "its key", metavar="FILE")
    flag("tls-client-ca", "serve only clients with a certificate of this authority", metavar="FILE")
    flag("auth", "auto: when there are access tokens, or others can reach it", choices=CHOICES["auth"])
    flag("insecure-no-authentication", "let everybody who can reach it do everything", action="store_true")
    flag("history", "what clients write who do not say (default: notable)", choices=CHOICES["history"])
    flag("most-history", "what clients may ask for without admin:*", choices=CHOICES["most_history"])
    flag("log-format", "for people or for machines (default: text)", choices=CHOICES["log_format"])
    flag("log-level", "debug also tells keys (default: info)", choices=CHOICES["log_level"])
    flag("drain", "how long to let requests finish at the end (default: 10)", metavar="S")
    flag("sweep-every", "how often to tidy the store (default: 300; 0: never)", metavar="S")
    limit = "set a limit, e.g. rate=500 or body=65536; may be given several times"
    add(parser, "--limit NAME=N", limit, action="append", default=[])
    add(parser, "--print-config", "say which settings hold and where they come from, and end")


def call(args: argparse.Namespace) -> None:
    """Serve until somebody ends it."""
    from holdfast.server.configuration import configure  # only who serves pays for it

    configuration = configure(_flags(args), os.environ, args.config)
    if args.print_config:
        for line in configuration.lines():
            print(line)
        return
    from holdfast.cli.server_process import serve

    serve(configuration.settings)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    from holdfast.server.configuration import names

    known = names()
    found = {name: value for name, value in vars(args).items() if name in known and name != "url"}
    if (url := url_of(args)) is not None:
        found["url"] = absolute(url)
    for text in args.limit:
        name, equals, value = text.partition("=")
        if not equals:
            raise errors.SettingsError(f"--limit is {text!r}; write a name and a number, e.g. rate=500")
        found[f"limits.{name}"] = value
    return found
