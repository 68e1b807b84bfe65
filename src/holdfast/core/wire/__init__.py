"""Requests, answers and errors as JSON: what a server and its clients send each other.

One table has all that can be asked: `locks`, `work` and `system` list the routes, each with its method, path,
members and their limits, answers, and the right it takes. A client asks by it. A server finds by it what is
asked for, checks that, makes the request of it, and describes itself. Times and durations are seconds.
"""

from holdfast.core.wire.answers import ANSWERS, POSSIBLE, answer_from_json, answer_name, answer_to_json
from holdfast.core.wire.ask import ROUTES, Asked, ask, ask_by
from holdfast.core.wire.problems import PROBLEM, error_from_json, error_to_json
from holdfast.core.wire.route import Route

__all__ = [
    "ANSWERS",
    "POSSIBLE",
    "PROBLEM",
    "ROUTES",
    "Asked",
    "Route",
    "answer_from_json",
    "answer_name",
    "answer_to_json",
    "ask",
    "ask_by",
    "error_from_json",
    "error_to_json",
]
