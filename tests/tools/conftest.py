"""The `desk` fixture, a project with Python tools whose imports and streams are restored after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .python_desk import Desk, restored_process


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with restored_process():
        root = tmp_path / "python"
        root.mkdir()
        yield Desk(root)
