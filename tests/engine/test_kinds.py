"""Every kind of tool and sink that the core knows can be opened in a live run."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.core.package import SINK_KINDS
from agentrun.core.package_tools import TOOL_KINDS
from agentrun.engine.kinds import open_executor, open_sink
from agentrun.engine.worlds.replay import UNREACHABLE
from agentrun.secret import Secret


def no_variable(name: str) -> Secret:
    raise AssertionError(name)


@pytest.mark.parametrize("kind", TOOL_KINDS)
def test_executor_of_each_tool_kind_can_be_opened(kind: str, tmp_path: Path) -> None:
    shown = {"printed": lambda tool, text: None, "clean": str}
    assert callable(open_executor(kind, tmp_path, (tmp_path,), {}, no_variable, UNREACHABLE, shown).run)


@pytest.mark.parametrize("kind", SINK_KINDS)
def test_port_of_each_sink_kind_can_be_opened(kind: str, tmp_path: Path) -> None:
    assert callable(open_sink(kind, tmp_path, UNREACHABLE, print).deliver)


def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fax"):
        open_sink("fax", tmp_path, UNREACHABLE, print)
    with pytest.raises(ValueError, match="fax"):
        open_executor("fax", tmp_path, (), {}, no_variable, UNREACHABLE, {})
