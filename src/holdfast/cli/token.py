"""``holdfast token``: who may use a server, and for what."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import secrets
from typing import Any

from holdfast import errors
from holdfast.cli.connection import ask
from holdfast.cli.options import Unsuccessful, add, add_store, patience
from holdfast.cli.output import clean, duration_text, moment_text, print_json, print_rows, say, tell
from holdfast.cli.target import existing, target
from holdfast.core.access import MOST_RIGHTS, AccessToken, GrantAccess, ListAccess, RevokeAccess, new_right
from holdfast.core.data import as_dict

DESCRIPTION = """\
Make, list and revoke the access tokens that a server asks its callers for.

  create NAME --allow RIGHT   make one, and show its secret, once
  list                        say which there are
  revoke ID                   let nobody in with it any more

A right is a verb and a key, or a prefix and a star: acquire:build:* is to take
locks whose keys begin with build:, observe:* to look at all of them. There are
acquire, observe, break, and admin, which is all three and the rest.

It works on the store itself, whether or not a server runs, and through a server
(--url https://...) with an access token that may admin:*. The store keeps only
a hash of the secret. A running server learns of a change within seconds.
"""

EPILOG = """\
examples:
  holdfast token create ops --allow 'admin:*'
  holdfast token create ci --allow 'acquire:build:*' --ttl 90d
  holdfast token revoke 4f1c09a2b7de
"""

SYNOPSIS = "create NAME --allow RIGHT ... | list | revoke ID"

_NAME = re.compile(r"[0-9A-Za-z_.@-]{1,64}")
_TTL = re.compile(r"(\d+(?:\.\d+)?)([smhdwy]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 366 * 86400}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what follows the command's name."""
    add(parser, "action ACTION", "create, list or revoke", choices=("create", "list", "revoke"))
    add(parser, "name NAME|ID", "whose it is, or which to revoke", nargs="?")
    allow = "what it allows, for example acquire:build:*; may be given several times"
    add(parser, "--allow RIGHT", allow, action="append", default=[])
    add(parser, "--ttl T", "how long it is valid, e.g. 12h or 90d (default: until revoked)", type=_ttl)
    add_store(parser, json="write JSON")


def call(args: argparse.Namespace) -> None:
    """Do what was asked for."""
    if args.action != "create" and (args.allow or args.ttl):
        raise errors.SettingsError("--allow and --ttl are for 'holdfast token create'")
    if args.action == "list":
        if args.name is not None:
            raise errors.SettingsError("'holdfast token list' lists all, and takes no name")
        _list(args)
    elif args.name is None:
        what = "NAME --allow RIGHT" if args.action == "create" else "ID"
        raise errors.SettingsError(f"who? Write 'holdfast token {args.action} {what}'")
    elif args.action == "create":
        _create(args)
    else:
        _revoke(args)


def new_secret() -> tuple[str, str, str]:
    """Return the id of a new access token, the token itself, and the hash of its secret part."""
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return id, f"hf_{id}_{secret}", hashlib.sha256(secret.encode()).hexdigest()


def _create(args: argparse.Namespace) -> None:
    if not _NAME.fullmatch(args.name):
        raise errors.SettingsError(
            f"name is {args.name!r}; it may have up to 64 letters, digits and the signs . _ @ -"
        )
    if not args.allow:
        raise errors.SettingsError("a token that allows nothing is of no use: say --allow, e.g. observe:*")
    rights = tuple(dict.fromkeys(str(new_right(text)) for text in args.allow))
    if len(rights) > MOST_RIGHTS:
        raise errors.SettingsError(f"{len(rights)} rights are given; one token has at most {MOST_RIGHTS}")
    id, secret, digest = new_secret()
    made = ask(target(args), GrantAccess(id, args.name, digest, rights, args.ttl), patience(args))
    if args.json:
        print(json.dumps({**_public(made), "token": secret}))
        return
    print(secret, flush=True)
    until = "until it is revoked" if args.ttl is None else f"for {duration_text(args.ttl)}"
    say(f"{made.name} may {', '.join(rights)}, {until}; the token's id is {id}")
    say("keep it: it is shown only now. Clients take it from $HOLDFAST_ACCESS_TOKEN, or send it as")
    say("'Authorization: Bearer hf_...'; the dashboard asks for it")


def _list(args: argparse.Namespace) -> None:
    found = ask(existing(args), ListAccess(), patience(args))
    tokens = sorted(found, key=lambda token: (token.name, token.created_at))
    if args.json:
        print_json(map(_public, tokens))
        return
    if not tokens:
        say("there are no access tokens: make one with 'holdfast token create NAME --allow admin:*'")
        return
    rows = [("ID", "NAME", "CREATED", "EXPIRES", "RIGHTS")]
    for token in tokens:
        expires = "never" if token.expires_at is None else moment_text(token.expires_at)
        rights = " ".join(map(clean, token.rights))
        rows.append((token.id, clean(token.name), moment_text(token.created_at), expires, rights))
    print_rows(rows)


def _revoke(args: argparse.Namespace) -> None:
    gone = ask(existing(args), RevokeAccess(args.name), patience(args))
    if gone is None:
        raise Unsuccessful(
            f"there is no access token with the id {clean(args.name)!r}: see 'holdfast token list'"
        )
    text = f"revoked {gone.id}, which let {clean(gone.name)} {clean(', '.join(gone.rights))}"
    tell(args, _public(gone), text)


def _public(token: AccessToken) -> dict[str, Any]:
    return {name: value for name, value in as_dict(token).items() if name != "digest"}


def _ttl(text: str) -> float:
    match = _TTL.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 12h, 30d or 1y")
    return float(match[1]) * _UNITS[match[2]]
