"""The tests that come first are there."""

from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
ROOT = CONFTEST.parents[1]


def test_the_longest_are_there(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(CONFTEST))
    assert conftest is not None
    for name in conftest.LONGEST:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
