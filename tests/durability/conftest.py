from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of the stores that a test makes are not in the home directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
