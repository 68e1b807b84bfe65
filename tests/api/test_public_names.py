"""The public names, listed in a file that reviewers see change.

After a change that is meant: ``python tests/api/test_public_names.py`` writes the list anew.
"""

import difflib
import inspect
from pathlib import Path

import holdfast

LIST = Path(__file__).with_name("public_api.txt")


def signature(value: object) -> str:
    try:
        return str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def public_names() -> list[str]:
    lines = []
    for name in sorted(holdfast.__all__):
        value = getattr(holdfast, name)
        if inspect.ismodule(value):
            lines += [
                f"{name}.{each}{signature(member)}"
                for each, member in sorted(vars(value).items())
                if not each.startswith("_")
                and inspect.isroutine(member)
                and member.__module__ == value.__name__
            ]
            continue
        lines.append(f"{name}{signature(value)}")
        for each, member in sorted(inspect.getmembers(value)):
            if each.startswith("_") and each not in ("__enter__", "__aenter__"):
                continue
            owner = next((cls for cls in value.__mro__ if each in vars(cls)), object)
            if not owner.__module__.startswith("holdfast"):
                continue
            shown = signature(member) if inspect.isroutine(member) else ""
            lines.append(f"  {name}.{each}{shown}")
    return lines


def test_the_public_names_are_the_listed_ones():
    listed = LIST.read_text("utf-8").splitlines()
    difference = "\n".join(difflib.unified_diff(listed, public_names(), "listed", "now", lineterm="", n=0))
    assert not difference, f"{difference}\n\nif that is meant: python tests/api/test_public_names.py"


def test_every_public_name_says_what_it_is_for():
    silent = []
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        if not inspect.getdoc(value):
            silent.append(name)
        for each, member in inspect.getmembers(value):
            mine = inspect.isfunction(member) and member.__module__.startswith("holdfast")
            if mine and not each.startswith("_") and not inspect.getdoc(member):
                silent.append(f"{name}.{each}")
    assert silent == []


def test_unknown_names_are_missed_as_usual():
    assert not hasattr(holdfast, "nonsense")
    assert set(holdfast.__all__) <= set(dir(holdfast))


if __name__ == "__main__":
    LIST.write_text("\n".join(public_names()) + "\n", "utf-8")
