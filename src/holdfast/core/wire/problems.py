"""Errors as JSON: problems (RFC 9457) with the error's name and fields.

Whatever the Python clients raise for is one, and has the answer itself under ``because``.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast import errors
from holdfast.core.data import as_dict
from holdfast.core.wire.answers import answer_to_json
from holdfast.core.wire.shapes import Json

PROBLEM = "urn:holdfast:error:"


def error_to_json(error: errors.HoldfastError, because: Any = None) -> Json:
    """Return an error as a problem, with the answer that it is raised for."""
    kind = errors.kind_of(error)
    name = kind.__name__
    fields = {
        field: as_dict(value)
        for field, value in vars(error).items()
        if not field.startswith("_") and field not in ("detail", "status")
    }
    problem: Json = {
        "type": f"{PROBLEM}{name}",
        "title": (kind.__doc__ or "").partition(".")[0],  # what kind of error it is, in words
        "status": errors.http_status(error),
        "detail": str(error),
        "error": name,
        **fields,
    }
    if because is not None:
        problem["because"] = because if isinstance(because, dict) else answer_to_json(because)
    return problem


def _number(value: Any, otherwise: float) -> float:
    """Return a number of a problem, which may come from anybody on the way."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else otherwise


def error_from_json(status: int, body: Json) -> errors.HoldfastError:
    """Return the error that a problem tells of, for what a store may raise."""
    detail = str(body.get("detail", ""))
    kind: Any = getattr(errors, str(body.get("error")), None)
    if kind is errors.TooManyRequests:
        return errors.TooManyRequests(_number(body.get("retry_after"), 1.0), detail)
    if kind is errors.LimitExceeded:
        return errors.LimitExceeded(str(body.get("limit")), _number(body.get("most"), 0.0), detail)
    if kind is errors.InvalidKey:
        return errors.InvalidKey(body.get("key"), str(body.get("reason")))
    told = isinstance(kind, type) and issubclass(kind, errors.StoreError | errors.SettingsError)
    if told and kind is not errors.RequestRefused:
        return cast("errors.HoldfastError", kind(detail))
    return errors.RequestRefused(status, detail or f"the server answered {status}")
