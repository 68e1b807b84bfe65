"""What type checkers see of the API."""

from pathlib import Path

from mypy import api

EXAMPLES = Path(__file__).with_name("typing_examples.py")


def check(file: Path) -> str:
    output, errors, _ = api.run(["--strict", "--no-error-summary", "--no-incremental", str(file)])
    return output + errors


def test_the_examples_are_typed_as_they_say():
    assert check(EXAMPLES) == ""


def test_mistakes_are_found(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from holdfast import Holdfast\n"
        "locks = Holdfast()\n"
        "locks.hold('a', tll=3)\n"
        "locks.guarded('a', on_busy='sometimes')\n"
        "locks.try_acquire('a').release()\n"
        "with locks.hold('a') as lease: lease.token = 3\n"
    )
    found = check(wrong)
    assert [f"wrong.py:{line}: error" in found for line in (3, 4, 5, 6)] == [True] * 4, found
