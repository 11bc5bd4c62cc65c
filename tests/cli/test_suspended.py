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
    assert done.err.endswith(
        "suspended: the run waits for pay (c1.0)\n"
        "  → it is not known whether the call ran; find out before you run it again\n"
    )
