"""The first hour of a new user: every command is typed, from an empty directory to a green test, a red one and back."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from agentrun.testing.provider import ScriptedProvider

from ..cli.command import CommandResult, agentrun

GIT = ("git", "-c", "user.name=New User", "-c", "user.email=new@user.example", "-c", "init.defaultBranch=main")
ANSWER = 'agentrun: "1"\nturns: [{text: "Hello, I am an assistant. How can I help?"}]\n'


class NewUser:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, Any] = {}

    def type(self, command: str, expected: int = 0) -> CommandResult:
        """Type a command without quotes, and look at its exit code."""
        home = {"HOME": f"{self.folder}-home"}  # it remembers which stores are the user's own
        done = agentrun(*command.split()[1:], cwd=self.folder, **{**home, **self.environment})
        assert done.code == expected, f"$ {command}\n{done.out}{done.err}"
        return done

    def git(self, words: str) -> str:
        done = subprocess.run([*GIT, *words.split()], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        assert old in path.read_text(encoding="utf-8")
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_new_user_gets_from_an_empty_directory_to_green_red_and_back(tmp_path: Path) -> None:
    user = NewUser(tmp_path)
    assert "agentrun init my-agent" in user.type("agentrun --help").out
    assert "specs/hello.yaml: new" in user.type("agentrun init my-agent").err
    user.folder = tmp_path / "my-agent"
    user.git("init -q")
    user.git("add .")
    user.git("commit -qm first")

    ran = user.type("agentrun specs/hello.yaml")
    assert ran.err.startswith("replay: cassettes/hello/default.yaml (case default; nothing is sent)")
    assert "Answer in English" in user.type("agentrun render specs/hello.yaml").out
    user.type("agentrun validate --strict specs/")
    assert "1 passed" in user.type("agentrun test").out

    user.edit("specs/prompts/hello.md.j2", "one short sentence", "two short sentences")
    missed = user.type("agentrun test", expected=3).out
    assert "specs/prompts/hello.md.j2 line 1" in missed
    assert "likely cause: the spec's section instructions changed since the recording" in missed
    assert "one short sentence" in missed
    assert "two short sentences" in missed
    changed = user.type("agentrun diff specs/hello.yaml --since HEAD", expected=1).out
    assert "two short sentences" in changed

    with ScriptedProvider(ANSWER) as server:  # in place of the user's provider and key
        user.environment = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": f"{server.url}/v1"}
        assert "recorded: cassettes/hello/default.yaml" in user.type("agentrun test --record new").err
    user.environment = {}
    red = user.type("agentrun test", expected=1).out
    assert "“Hello! I am a friendly assistant, here to help you.” → “Hello, I am an assistant. How can I help?”" in red
    user.type("agentrun test --update")
    assert "1 passed" in user.type("agentrun test").out
    behaviour = user.type("agentrun diff specs/__snapshots__ --since HEAD --markdown", expected=1).out
    assert "How can I help" in behaviour

    user.git("restore .")
    assert "1 passed" in user.type("agentrun test").out
    assert user.git("status --porcelain") == "", "nothing is left behind"
