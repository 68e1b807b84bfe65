"""Where a server's settings come from: flags, then the environment, then one TOML file, then the defaults.

Names are the same everywhere: ``drain`` in the file is ``--drain`` and ``HOLDFAST_SERVER_DRAIN``; ``body`` in
its table ``[limits]`` is ``--limit body=…`` and ``HOLDFAST_SERVER_LIMITS_BODY``. A name that is not known is
an error: a misspelt limit would protect nobody.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from holdfast.core.data import data
from holdfast.errors import SettingsError
from holdfast.server.settings import Limits, ServerSettings
from holdfast.stores import shown
from holdfast.stores.base import YES

ENVIRONMENT = "HOLDFAST_SERVER_"
CONFIG = f"{ENVIRONMENT}CONFIG"  # the file may be named there, too

URL = "HOLDFAST_URL"  # what all clients use: the last to be asked

# Set by tests alone: whoever may say what time it is may take every lock.
_HIDDEN = frozenset({"accept_times", "limits"})

_SECRET = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


@data
class Configuration:
    """Settings, and for each where it came from."""

    settings: ServerSettings
    sources: dict[str, str]

    def lines(self) -> Iterator[str]:
        """Return every setting with its value and origin, as TOML that could be the file."""
        values = {name: value_of(self.settings, name) for name in self.sources}
        values["url"] = masked(values["url"])
        texts = {name: _toml(value) for name, value in values.items()}
        width = max(len(f"{name.rpartition('.')[2]} = {text}") for name, text in texts.items())
        table = ""
        for name, text in texts.items():
            at, _, last = name.rpartition(".")
            if at != table:
                yield f"\n[{at}]"
                table = at
            yield f"{f'{last} = {text}':<{width}}  # {self.sources[name]}"


def names() -> dict[str, str]:
    """Return the names of all settings, and the kind of each: ``int``, ``float``, ``bool`` or ``str``."""
    plain = {name: kind for name, kind in ServerSettings.__annotations__.items() if name not in _HIDDEN}
    limits = {f"limits.{name}": kind for name, kind in Limits.__annotations__.items()}
    kinds = {"int": "int", "float": "float", "bool": "bool"}
    return {name: kinds.get(kind, "str") for name, kind in (plain | limits).items()}


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT + name.replace(".", "_").upper()


def value_of(settings: ServerSettings, name: str) -> Any:
    """Return the value of a setting by its name."""
    at, _, last = name.rpartition(".")
    return getattr(settings.limits if at else settings, last)


def masked(url: str) -> str:
    """Return *url* without what is nobody's business."""
    return _SECRET.sub(r"\1***", shown(url))


def configure(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | Path | None = None
) -> Configuration:
    """Put the settings together. *flags* are those that were given, by the settings' names."""
    file = file or environment.get(CONFIG)
    given: dict[str, tuple[Any, str]] = {}
    if file:
        given |= {name: (value, str(file)) for name, value in read_file(Path(file)).items()}
    if "url" not in given and environment.get(URL):
        given["url"] = (environment[URL], URL)
    given |= {name: (value, variable(name)) for name, value in read_environment(environment).items()}
    for name, value in flags.items():
        _known(name, names(), "setting")
        flag = f"--limit {name.removeprefix('limits.')}" if name.startswith("limits.") else _flag(name)
        given[name] = (_typed(name, value) if isinstance(value, str) else value, flag)
    sources = {name: given[name][1] if name in given else "default" for name in names()}
    values = {name: value for name, (value, _) in given.items()}
    try:
        limits = {name[7:]: values.pop(name) for name in list(values) if name.startswith("limits.")}
        settings = ServerSettings(**values, limits=Limits(**limits))
    except SettingsError as error:
        raise SettingsError(f"{error}{_blame(str(error), sources)}") from error
    return Configuration(settings, sources)


def read_file(path: Path) -> dict[str, Any]:
    """Return what a file sets."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"the configuration cannot be read: {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    limits = content.pop("limits", {})
    if not isinstance(limits, dict):
        raise SettingsError(f"limits in {path} must be a table: [limits], and one limit a line below it")
    found = content | {f"limits.{name}": value for name, value in limits.items()}
    known = names()
    for name, value in found.items():
        _known(name, known, f"setting in {path}")
        if known[name] != "float" and type(value).__name__ != known[name]:
            raise SettingsError(f"{name} in {path} is {value!r}; it must be {_KINDS[known[name]]}")
    return found


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment sets."""
    known = {variable(name): name for name in names()}
    found = {}
    for given, text in environment.items():
        if given.startswith(ENVIRONMENT) and given != CONFIG:
            _known(given, known, "variable")
            found[known[given]] = _typed(known[given], text)
    return found


def _typed(name: str, text: str) -> Any:
    """Return the text of a flag or variable as what the setting is."""
    kind = names()[name]
    if kind == "str":
        return text
    try:
        if kind == "bool":
            return YES[text.lower()]
        return int(text) if kind == "int" else float(text)
    except (ValueError, KeyError) as error:
        raise SettingsError(f"{name} is {text!r}; it must be {_KINDS[kind]}") from error


_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a string"}


def _known(name: str, known: Mapping[str, Any], what: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.0)
        raise SettingsError(f"there is no {what} {name!r}; the nearest is {near[0]!r}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _blame(message: str, sources: Mapping[str, str]) -> str:
    """Return where a value that is refused came from, if the message begins with its name."""
    source = sources.get(message.partition(" ")[0], "default")
    return "" if source == "default" else f" (from {source})"


def _toml(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and value < 1e6:
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)  # what is no table is written the same in both
