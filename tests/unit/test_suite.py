"""The conformance suite is put together of many mixins: none of them may hide what another has."""

from collections import defaultdict
from pathlib import Path

from holdfast.testing import conformance
from holdfast.testing.conformance import StoreConformance


def test_no_subject_hides_a_test_of_another():
    found = defaultdict(list)
    for kind in StoreConformance.__mro__[:-1]:
        for name in vars(kind):
            if not name.startswith("__"):
                found[name].append(kind.__name__)
    assert {name: kinds for name, kinds in found.items() if len(kinds) > 1} == {}


def test_all_its_modules_explain_themselves():
    """Those that are not listed are imported as they are, and their failures say nothing."""
    folder = Path(conformance.__file__).parent
    assert sorted(path.stem for path in folder.glob("*.py")) == sorted(("__init__", *conformance._MODULES))
