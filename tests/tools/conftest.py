"""A desk for each test, and a process that is left as it was found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .desks import Desk, unchanged


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with unchanged():
        root = tmp_path / "python"
        root.mkdir()
        yield Desk(root)
