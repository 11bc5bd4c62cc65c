"""An agent with HTTP tools and a scripted model, run by the real command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from agentrun.core.facts import ToolFinished
from agentrun.journal.storage import read_journal_file

from ..cli.command import CommandResult
from ..cli.shop_project import Project

ANY = {"type": "object", "additionalProperties": True}


def http_tool(url: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "http", "description": "Asks a server.", "url": url, "args": ANY, **fields}


class HttpDesk(Project):
    """A project whose tools are given."""

    def __init__(self, root: Path, tools: dict[str, Any], **more: Any) -> None:
        super().__init__(root)
        spec = {
            "agentrun": "1",
            "name": "shop",
            "model": {"provider": "openai", "name": "gpt-4.1-mini"},
            "instructions": "You look after a shop.",
            "input": "Go.",
            "tools": tools,
            "policy": {"default": "allow"},
            "guards": {"repeated_call": "off", "repeated_batch": "off"},
            "budgets": {"turns": 50, "time": "5m"},
            **more,
        }
        self.spec.write_text(yaml.safe_dump(spec, allow_unicode=True), encoding="utf-8")

    def live(self, *calls: tuple[str, dict[str, Any]], mode: str = "live", **env: str) -> CommandResult:
        """A run in which the model makes these calls, one in each turn."""
        turns: list[dict[str, Any]] = [{"calls": [{"tool": name, "args": given}]} for name, given in calls]
        story = yaml.safe_dump({"agentrun": "1", "turns": [*turns, {"text": "Done."}]}, allow_unicode=True)
        (self.root / "run.jsonl").unlink(missing_ok=True)
        with self.provider(story) as (_, environment):
            return self.run(
                "--mode", mode, *(["--yes"] if mode == "record" else []), "--journal", "run.jsonl", **environment, **env
            )

    def finished(self) -> list[ToolFinished]:
        """What came of the calls."""
        facts = [record.fact for record in read_journal_file(self.root / "run.jsonl")]
        return [fact for fact in facts if isinstance(fact, ToolFinished)]

    def reasons(self) -> list[Any]:
        """Why the calls failed. None: they did not."""
        return [each.fault and each.fault.fields.get("reason", each.fault.code) for each in self.finished()]

    def texts(self) -> list[str]:
        """What the model read."""
        return ["".join(getattr(part, "text", "") for part in each.parts) for each in self.finished()]

    def written(self) -> bytes:
        """Every byte of every file but the user's own."""
        own = {"shop.yaml", "prompt.md", "desk.py", "pyproject.toml"}
        files = (path for path in self.root.rglob("*") if path.is_file() and path.name not in own)
        return b"\n".join(path.read_bytes() for path in files)
