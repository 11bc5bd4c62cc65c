"""What the command prints for a suspended run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..attacks.http_desk import HttpDesk, http_tool
from ..servers import CLOSE, Server


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_suspended_run_names_the_call_with_an_unknown_result(tmp_path: Path, quiet: tuple[str, ...]) -> None:
    with Server([CLOSE]) as server:
        desk = HttpDesk(tmp_path, {"pay": http_tool(f"{server.url}/pay", private_network=True, method="POST")})
        with desk.provider('agentrun: "1"\nturns:\n  - calls: [{tool: pay, args: {}}]\n') as (_, environment):
            done = desk.run("--mode", "live", *quiet, **environment)
    assert (done.code, done.out) == (8, ""), done.err
    lines = done.err.splitlines()[-6:]
    assert lines[0] == "suspended: it is not known whether pay (c1.0) took effect"
    assert lines[1].startswith("  it was started at 20")
    assert lines[1].endswith(" UTC with {}; no result of it is known")
    (run,) = (path.name for path in (tmp_path / ".agentrun" / "runs").iterdir())
    assert lines[2:] == [
        "  find out what happened, and then:",
        f"  → agentrun settle {run} c1.0 --retry          run it again",
        f"  → agentrun settle {run} c1.0 --result TEXT    do not run it: TEXT is its result",
        f"  → agentrun settle {run} c1.0 --stop           do not run it: end the run",
    ]


def test_suspended_run_that_is_not_stored_cannot_be_settled(tmp_path: Path) -> None:
    with Server([CLOSE]) as server:
        desk = HttpDesk(tmp_path, {"pay": http_tool(f"{server.url}/pay", private_network=True, method="POST")})
        with desk.provider('agentrun: "1"\nturns:\n  - calls: [{tool: pay, args: {}}]\n') as (_, environment):
            done = desk.run("--mode", "live", AGENTRUN_STORE="none", **environment)
    assert done.code == 8
    assert done.err.splitlines()[-1] == "  → find out what happened before you run it again"
    assert "settle" not in done.err
