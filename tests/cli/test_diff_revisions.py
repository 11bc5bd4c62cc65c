"""`agentrun diff` with git revisions: real repositories, and nothing of the repository is executed."""

from __future__ import annotations

import os
import subprocess
from html import unescape
from pathlib import Path

import pytest

from .command import ROOT, agentrun

SPEC = """\
agentrun: "1"
name: hello
model: {provider: openai, name: gpt-4.1-mini}
instructions: {file: prompts/hello.md}
input: Hello
budgets: {turns: 2}
"""
IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b.c",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b.c",
}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "-C", folder, *words], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose project is in a folder of its own, with one commit."""
    folder = tmp_path / "repository"
    (folder / "agents" / "specs" / "prompts").mkdir(parents=True)
    (folder / "agents" / "pyproject.toml").write_text("[tool.agentrun]\n")
    (folder / "agents" / "specs" / "hello.yaml").write_text(SPEC)
    (folder / "agents" / "specs" / "prompts" / "hello.md").write_text("Greet.\n")
    (folder / "other.txt").write_text("not of the project\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_prompt_of_a_revision_is_compared_with_the_work_tree(repository: Path) -> None:
    spec = "agents/specs/hello.yaml"
    same = agentrun("diff", f"HEAD:{spec}", spec, cwd=repository)
    assert (same.code, same.out) == (0, "")
    (repository / "agents/specs/prompts/hello.md").write_text("Greet politely.\n")
    changed = agentrun("diff", f"HEAD:{spec}", spec, cwd=repository)
    assert (changed.code, '"Greet." → "Greet politely."' in changed.out) == (1, True), changed.out
    since = agentrun("diff", "hello.yaml", "--since", "main", cwd=repository / "agents" / "specs")
    assert (since.code, since.out) == (1, changed.out)
    git(repository, "commit", "-qam", "second")
    assert agentrun("diff", f"HEAD:{spec}", spec, cwd=repository).code == 0
    assert agentrun("diff", f"HEAD~1:{spec}", f"HEAD:{spec}", cwd=repository).out == changed.out


def test_output_names_the_revision_and_not_the_temporary_folder(repository: Path) -> None:
    (repository / "agents/specs/prompts/hello.md").write_text("Greet politely.\n")
    done = agentrun("diff", "agents/specs/hello.yaml", "--since", "HEAD", "--markdown", cwd=repository)
    assert unescape(done.out).startswith(
        "### <code>HEAD:./agents/specs/hello.yaml</code> → <code>agents/specs/hello.yaml</code>"
    )
    broken = repository / "agents/specs/hello.yaml"
    broken.write_text(SPEC.replace("hello.md", "hallo.md"))
    git(repository, "commit", "-qam", "broken")
    done = agentrun("diff", "agents/specs/hello.yaml", "--since", "HEAD", cwd=repository)
    assert (done.code, "agentrun-" in done.err) == (2, False)
    assert "specs/hello.yaml:4:" in done.err


def test_folders_and_journals_of_a_revision_are_compared(repository: Path) -> None:
    snapshot = ROOT / "specs/__snapshots__/triage/default.journal"
    copy = repository / "agents/specs/__snapshots__/hello/default.journal"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(snapshot.read_bytes())
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "snapshot")
    assert agentrun("diff", "agents/specs/__snapshots__", "--since", "HEAD", cwd=repository).code == 0
    copy.unlink()
    (done,) = agentrun("diff", "agents/specs/__snapshots__", "--since", "HEAD", "--json", cwd=repository).lines()
    assert [(each["file"], each["a"]) for each in done["files"]] == [
        ("hello/default.journal", "HEAD:./agents/specs/__snapshots__/hello/default.journal")
    ]


@pytest.mark.parametrize("path", [[], ["."], ["agents"], ["agents/specs"]])
def test_specs_of_a_folder_are_compared_with_a_revision(repository: Path, path: list[str]) -> None:
    done = agentrun("diff", *path, "--since", "HEAD", cwd=repository)
    assert (done.code, done.out, done.err) == (0, "", "no differences\n")
    (repository / "agents/specs/prompts/hello.md").write_text("Greet politely.\n")
    (repository / "agents/specs/new.yaml").write_text(SPEC.replace("name: hello", "name: new"))
    (repository / "agents/specs/shared.yaml").write_text('agentrun: "1"\nbudgets: {turns: 3}\n')
    done = agentrun("diff", *path, "--since", "HEAD", cwd=repository)
    assert (done.code, '~ instructions: "Greet." → "Greet politely."' in done.out) == (1, True), done.out
    assert "+ the spec is new" in done.out
    assert "shared.yaml" not in done.out
    assert done.err == "2 differences in 2 of 2 files\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["HEAD:agents/specs/helo.yaml", "agents/specs/hello.yaml"], 'did you mean "agents/specs/hello.yaml"?'),
        (["nothing:agents/specs/hello.yaml", "agents/specs/hello.yaml"], 'there is no revision "nothing"'),
        (["--since=--output=x", "agents/specs/hello.yaml"], 'there is no revision "--output=x"'),
        (["agents/specs/hello.yaml"], "give a second path B or --since REVISION"),
        (["agents/specs/helo.yaml", "agents/specs/hello.yaml"], 'did you mean "agents/specs/hello.yaml"?'),
        (["HEAD:../x.yaml", "agents/specs/hello.yaml"], "is not in the repository"),
        (["HEAD:/x.yaml", "agents/specs/hello.yaml"], "is not in the repository"),
    ],
)
def test_wrong_revisions_and_paths_are_explained(repository: Path, words: list[str], message: str) -> None:
    done = agentrun("diff", *words, cwd=repository)
    assert (done.code, done.out, message in done.err) == (2, "", True), done.err
    assert not (repository / "x").exists()


def test_outside_a_repository_a_revision_is_an_error(tmp_path: Path) -> None:
    done = agentrun("diff", "HEAD:a.yaml", "HEAD:b.yaml", cwd=tmp_path)
    assert (done.code, "is not in a git repository" in done.err) == (2, True)


def test_nothing_of_the_repository_is_executed(repository: Path) -> None:
    """Hooks, fsmonitor, textconv and smudge filters would each leave a file. The index stays as it is."""
    trap = repository / "trap.sh"
    trap.write_text(f'#!/bin/sh\ntouch {repository}/executed\ncat "$1" 2>/dev/null\n')
    trap.chmod(0o755)
    (repository / ".gitattributes").write_text("*.md diff=trap filter=trap\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "attributes")
    for key in ("core.fsmonitor", "diff.trap.textconv", "filter.trap.smudge", "core.pager", "diff.external"):
        git(repository, "config", key, str(trap))
    hooks = repository / ".git" / "hooks"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    before = (repository / ".git" / "index").read_bytes()
    (repository / "executed").unlink(missing_ok=True)  # the commands of this test may have left it
    (repository / "agents/specs/prompts/hello.md").write_text("Greet politely.\n")
    done = agentrun("diff", "agents/specs/hello.yaml", "--since", "HEAD", cwd=repository)
    assert (done.code, (repository / "executed").exists()) == (1, False)
    assert (repository / ".git" / "index").read_bytes() == before
    git(repository, "status")
    assert (repository / "executed").exists(), "the trap works"


def test_links_and_submodules_of_a_revision_are_left_out(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    prompt = repository / "agents/specs/prompts/hello.md"
    prompt.unlink()
    prompt.symlink_to(tmp_path / "secret.md")
    git(repository, "commit", "-qam", "link")
    prompt.unlink()
    prompt.write_text("Greet.\n")
    done = agentrun("diff", "agents/specs/hello.yaml", "--since", "HEAD", cwd=repository)
    assert (done.code, "secret" in done.out + done.err) == (2, False)
