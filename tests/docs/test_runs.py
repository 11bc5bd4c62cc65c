"""docs/runs.md: its commands are run and print what the page shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from agentrun.testing.provider import ScriptedProvider

from ..cli.command import CommandResult, agentrun, start
from ..cli.cut_runs import wait_until
from ..cli.shop_project import KEY
from .terminal import ROOT, Terminal, blocks, steps

PAGE = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")


def copy_project(folder: Path) -> None:
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    copy_project(tmp_path)
    with Terminal(tmp_path) as terminal:
        for kind, block in blocks(PAGE):
            if kind == "console":
                terminal.follow(block)


def test_lines_have_at_most_120_characters() -> None:
    assert [line for line in PAGE.splitlines() if len(line) > 120 and not line.startswith("|")] == []


# --- text blocks: the ids and times of real runs differ from those of the page ---------------------------------------

HOLD = '    while Path("hold").exists():\n        __import__("time").sleep(0.01)\n    return {'
REFUSED = 'agentrun: "1"\nturns: [{text: "", faults: [{status: 401}]}]\n'
_RUN_ID = re.compile(r"run-[0-9a-f]{16}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d UTC)?")


def shown_under(command: str) -> str:
    """What a text block of the page shows under a command."""
    texts = (step for kind, block in blocks(PAGE) if kind == "text" for step in steps(block))
    return next(shown for typed, shown in texts if typed == command)


def with_ids_and_times(printed: str, shown: str) -> str:
    """What was printed, with the ids and times that are shown."""
    ids = dict(zip(dict.fromkeys(_RUN_ID.findall(printed)), dict.fromkeys(_RUN_ID.findall(shown)), strict=True))
    times = iter(_TIME.findall(shown))
    printed = _RUN_ID.sub(lambda found: ids[found[0]], printed)
    return _TIME.sub(lambda _: next(times), printed)


def test_list_of_runs_and_lost_call_are_printed_as_the_page_shows(tmp_path: Path) -> None:
    copy_project(tmp_path)
    refunds = tmp_path / "specs/shop/refunds.py"
    refunds.write_text(refunds.read_text(encoding="utf-8").replace("    return {", HOLD), encoding="utf-8")
    scripts = {
        name: (ROOT / f"specs/scripts/support.{name}.provider.yaml").read_text() for name in ("default", "approval")
    }

    def environment(server: ScriptedProvider) -> dict[str, Any]:
        keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
        return {"HOME": str(tmp_path), "OPENAI_BASE_URL": f"{server.url}/v1", **keys}

    def command(*words: str, story: str = REFUSED) -> CommandResult:
        with ScriptedProvider(story) as server:
            return agentrun(*words, cwd=tmp_path, **environment(server))

    assert command("specs/triage.yaml", "--mode", "live").code == 6
    assert command("specs/support.yaml", "--new-session", "ada", story=scripts["default"]).code == 0
    (tmp_path / "hold").touch()
    (tmp_path / "shop-ledger.jsonl").unlink()
    short = scripts["approval"].replace(', reason: "arrived damaged"', "")  # a page has narrow lines
    with ScriptedProvider(short) as server:
        words = ("specs/support.yaml", "--case", "approval", "--mode", "live", "--approve", "all")
        running = start(*words, cwd=tmp_path, environment=environment(server))
        wait_until((tmp_path / "shop-ledger.jsonl").exists)
        running.kill()
        running.wait(60)
        running.communicate()
    listed, resumed = command("runs", "--since", "7d"), command("resume", "-")
    assert (resumed.code, listed.code) == (8, 0)
    for printed, typed in ((resumed.err, "agentrun resume -"), (listed.out, "agentrun runs --since 7d")):
        shown = shown_under(typed)
        assert with_ids_and_times(printed, shown) == shown
