"""docs/testing.md: its commands are run, its cases are read, and its functions are called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from textwrap import indent
from typing import Any, get_args

import pytest
import yaml

from agentrun.cli.init import STARTER
from agentrun.compiler.validate import validate_document
from agentrun.spec.v1.assertions import Assertion
from agentrun.spec.v1.cases import InjectedFaultSpec

from ..cli.command import CommandResult, agentrun
from .terminal import BIN, ROOT, Terminal, blocks

WORKFLOW = yaml.safe_load((STARTER / "workflow.yml").read_text(encoding="utf-8"))
REPLAY, COMMENT = WORKFLOW["jobs"]["replay"], WORKFLOW["jobs"]["comment"]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = blocks(PAGE)
FILES = {block.split("\n")[0].removeprefix("# "): block for kind, block in BLOCKS if kind != "console"}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("committed")
    for name in ("specs", "cassettes", "schemas"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n', encoding="utf-8")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def project(committed: Path, tmp_path: Path) -> Path:
    """The examples, in a repository of their own."""
    return shutil.copytree(committed, tmp_path, dirs_exist_ok=True)


def run_test_command(project: Path, path: Path) -> CommandResult:
    shutil.rmtree(project / "specs" / "__snapshots__")
    return agentrun("test", path, cwd=project)


def test_commands_print_what_the_page_shows(project: Path) -> None:
    (project / "test_support.py").write_text(FILES["test_support.py"], encoding="utf-8")
    with Terminal(project) as terminal:
        for kind, block in BLOCKS:
            if kind == "console":
                terminal.follow(block)
    assert (project / "agents.xml").exists()
    assert len(list((project / "__snapshots__" / "test_support").iterdir())) == 1


@pytest.mark.parametrize("name", ["specs/triage.cases.yaml", "specs/support.cases.yaml"])
def test_case_file_is_valid(project: Path, name: str) -> None:
    (project / name).write_text(FILES[name], encoding="utf-8")
    assert validate_document(project / name) == []


def test_parts_of_cases_pass(project: Path) -> None:
    head = 'agentrun: "1"\ncases:\n'
    assertions = indent(FILES["part of a case"], "    ")
    faults = indent(FILES["part of specs/support.cases.yaml"], "  ")
    path = project / "specs" / "support.cases.yaml"
    path.write_text(f"{head}  - name: default\n{assertions}\n{faults}", encoding="utf-8")
    assert validate_document(path) == []
    done = run_test_command(project, path)
    assert done.code == 0, done.out


def test_values_of_the_page_are_ignored(project: Path) -> None:
    claims = indent(FILES["part of a case whose values may differ"], "    ")
    path = project / "specs" / "support.cases.yaml"
    path.write_text(f'agentrun: "1"\ncases:\n  - name: default\n{claims}', encoding="utf-8")
    done = agentrun("test", path, "--update", cwd=project)
    assert (done.code, "match nothing" in done.out) == (0, False), done.out
    text = (project / "specs/__snapshots__/support/default.journal").read_text(encoding="utf-8")
    assert (text.count('model: "[ignored]"'), text.count('"parcel":"[ignored]"'), "spent:" in text) == (4, 1, False)


def test_python_assertion_of_the_page_fails_with_its_message(project: Path) -> None:
    (project / "specs" / "checks.py").write_text(FILES["checks.py, in a folder of `import_roots`"], encoding="utf-8")
    path = project / "specs" / "support.cases.yaml"
    assertion = "{type: python, value: 'checks:thanks_the_customer'}"
    path.write_text(f'agentrun: "1"\ncases: [{{name: default, assert: [{assertion}]}}]\n', encoding="utf-8")
    done = run_test_command(project, path)
    assert (done.code, "it does not thank the customer" in done.out) == (1, True)


def test_assertion_with_network_needs_network_true(project: Path) -> None:
    function = "import socket\n\ndef asks_a_judge(run): socket.create_server(('127.0.0.1', 0)).close()\n"
    (project / "specs" / "checks.py").write_text(function, encoding="utf-8")
    path = project / "specs" / "support.cases.yaml"
    assertions = FILES["part of a case that asks a server"]
    path.write_text(f'agentrun: "1"\ncases:\n  - name: default\n{indent(assertions, "    ")}', encoding="utf-8")
    done = run_test_command(project, path)
    assert (done.code, "Live assertions" in done.out) == (0, True), done.out
    hint = next(block for kind, block in BLOCKS if kind == "text" and "asks_a_judge" in block).split("→ ")[1].strip()
    path.write_text(path.read_text(encoding="utf-8").replace(", network: true", ""), encoding="utf-8")
    done = agentrun("test", path, cwd=project)
    assert (done.code, hint in done.out) == (1, True), done.out


def test_every_type_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE.partition("| type |")[2].partition("\n\n")[0], re.MULTILINE)
    named = re.findall(r"`([a-z-]+)`", " ".join(rows))
    assert sorted(named) == sorted(str(each.__struct_config__.tag) for each in get_args(Assertion))


def test_every_fault_is_in_the_table() -> None:
    table = PAGE.partition("| at | inject |")[2].partition("\n\n")[0]
    assert [name for name in InjectedFaultSpec.__struct_fields__ if f"`{name}`" not in table] == ["times"]


def test_the_workflow_is_the_one_that_init_writes() -> None:
    written = (STARTER / "workflow.yml").read_text(encoding="utf-8")
    assert FILES[".github/workflows/agents.yml"] == f"# .github/workflows/agents.yml\n{written}"


def runs(job: dict[str, Any]) -> list[str]:
    """The shell lines of a job."""
    return [step["run"].strip() for step in job["steps"] if "run" in step]


def actions(job: dict[str, Any]) -> list[str]:
    return [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]


def comment(tmp_path: Path, artefact: Path, *, may: bool) -> str:
    """Run the second job in a folder with nothing but the artefact, and return what `gh` was asked to do."""
    folder, own = tmp_path / f"runner-{may}", tmp_path / f"own-{may}"
    folder.mkdir()
    own.mkdir()
    shutil.copy(artefact, folder)
    (own / "gh").write_text(f'#!/bin/sh\necho "$@" > said\nexit {0 if may else 1}\n', encoding="utf-8")
    (own / "gh").chmod(0o755)
    environment = {"PATH": f"{own}:/usr/bin:/bin", "PULL_REQUEST": "7"}
    for line in runs(COMMENT):
        subprocess.run(["/bin/sh", "-ec", line], cwd=folder, env=environment, check=True)
    return (folder / "said").read_text(encoding="utf-8")


def test_replay_job_has_only_read_permission() -> None:
    assert WORKFLOW["permissions"] == {}
    assert list(WORKFLOW["jobs"]) == ["replay", "comment"]
    assert REPLAY["permissions"] == {"contents": "read"}
    assert "secrets." not in str(REPLAY)
    assert "token" not in str(REPLAY)
    (checkout,) = [step["with"] for step in REPLAY["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert checkout["persist-credentials"] is False


def test_comment_job_runs_no_project_code() -> None:
    """It gets one file from the other job, and nothing that the other job says is part of a command."""
    assert COMMENT["permissions"] == {"pull-requests": "write"}
    assert COMMENT["needs"] == "replay"
    assert actions(COMMENT) == ["actions/download-artifact"]
    (upload,) = [step["with"] for step in REPLAY["steps"] if step.get("uses", "").startswith("actions/upload")]
    (download,) = [step["with"] for step in COMMENT["steps"] if "uses" in step]
    assert (download["name"], "behaviour.md" in upload["path"].split()) == (upload["name"], True)
    (line,) = runs(COMMENT)
    assert line.split()[:3] == ["gh", "pr", "comment"]
    assert "${{" not in "".join([*runs(COMMENT), *runs(REPLAY)])
    assert "needs." not in str(COMMENT["steps"])


def test_workflow_steps_run(project: Path) -> None:
    """All but those that need GitHub: what they run is a shell line, as here."""
    steps = runs(REPLAY)
    assert (len(steps), steps[0]) == (5, "pip install -r requirements-agents.txt")
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "CI": "true",
        "RUNNER_TEMP": str(project / "temporary"),
        "GITHUB_BASE_SHA": "HEAD",
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
        "GITHUB_OUTPUT": str(project / "output"),
    }
    for step in steps[1:]:
        done = subprocess.run(["/bin/sh", "-ec", step], cwd=project, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert (project / "agents.xml").exists()
    assert (project / "behaviour.md").exists()


@pytest.mark.parametrize(
    ("before", "now", "comments"),
    [
        ("", "", False),
        ("", "sed -i.old s/39.9/29.9/ specs/__snapshots__/support/default.journal", True),
        ("git rm -rq specs/__snapshots__ && git commit -qm b", "git checkout -q HEAD~ -- specs", True),
        ("git rm -rq specs/__snapshots__ && git commit -qm b", "", False),
    ],
    ids=["same", "changed", "first", "none"],
)
def test_pull_request_comment_shows_the_changes(
    tmp_path: Path, project: Path, before: str, now: str, comments: bool
) -> None:
    """Also by the first one that has snapshots, in a project without any, and by one that may not comment."""
    compare = runs(REPLAY)[-1]
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(project / "temporary"),
        "GITHUB_BASE_SHA": "HEAD",
        "GITHUB_STEP_SUMMARY": str(project / "summary.md"),
        "GITHUB_OUTPUT": str(project / "output"),
        **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    for line in (before, now, compare):
        done = subprocess.run(["/bin/sh", "-ec", line], cwd=project, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    assert ("differs=1\n" in (project / "output").read_text(encoding="utf-8")) == comments
    for may in (True, False) if comments else ():
        assert comment(tmp_path, project / "behaviour.md", may=may) == (
            "pr comment 7 --body-file behaviour.md --edit-last --create-if-none\n"
        )
    told = (project / "summary.md").read_text(encoding="utf-8")
    assert ("| changed |" in told or "| new |" in told) == comments
