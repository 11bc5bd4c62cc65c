"""With symbolic links in a repository, no command writes outside the project.

`make test` places 40 links at random, `make test-long` 500. The seed of each is its number.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.testing.provider import ScriptedProvider

from ..cli.command import CommandResult, agentrun

SPEC = """\
agentrun: "1"
name: a
model: {provider: openai, name: gpt-4.1-mini}
instructions: Answer in one word.
input: Hello
sinks: {page: {kind: file, path: out/page.txt, delivery: optional}}
budgets: {turns: 2, tokens: 2k}
retry: {first_delay: 1ms}
"""
CASES = (
    'agentrun: "1"\ncases:\n  - {name: default, assert: [{type: journal-snapshot}]}\n  - {name: other, input: Bye}\n'
)
STORY = 'agentrun: "1"\nturns: [{text: Hi.}]\n'
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"

LINKED_PATHS = (
    "cassettes",
    "cassettes/a",
    "cassettes/a/default.yaml",
    "cassettes/a/.default.yaml.new",
    "cassettes/a/fresh.yaml",
    "cassettes/a/unused.yaml",
    ".agentrun",
    ".agentrun/.gitignore",
    ".agentrun/locks",
    ".agentrun/locks/.gitignore",
    ".agentrun/locks/files.lock",
    ".agentrun/sessions",
    ".agentrun/sessions/.gitignore",
    ".agentrun/sessions/ada",
    ".agentrun/sessions/ada/lock",
    ".agentrun/sessions/ada/0001.jsonl",
    ".agentrun/recorded",
    ".agentrun/recorded/a",
    ".agentrun/recorded/a/default.yaml",
    "specs",
    "specs/__snapshots__",
    "specs/__snapshots__/a",
    "specs/__snapshots__/a/default.journal",
    "specs/__snapshots__/a/unused.journal",
    "specs/a.lock",
    "specs/a.cases.yaml",
    "specs/.a.cases.yaml.new",
    "out",
    "out/page.txt",
)
TARGETS = ("a file", "a directory", "nothing", "nothing in a missing directory", "a copy of what was there", "a chain")
COMMANDS: dict[str, tuple[str, ...]] = {
    "record": ("specs/a.yaml", "--mode", "record"),
    "record a new case": ("specs/a.yaml", "Ahoy", "--mode", "record", "--case", "fresh"),
    "record what is lacking": ("specs/a.yaml", "--record", "new"),
    "record without a provider": ("specs/a.yaml", "--mode", "record"),
    "live in a session": ("specs/a.yaml", "Hello", "--session", "ada", "--create"),
    "record cases": ("test", "specs", "--record", "all", "--update"),
    "accept journals": ("test", "specs", "--update"),
    "accept a recording": ("cassette", "accept", "specs/a.cases.yaml::default"),
    "prune": ("cassette", "prune", "--yes"),
    "prune a directory": ("cassette", "prune", "cassettes", "--yes"),
    "lock": ("lock", "specs/a.yaml"),
}


class Repository:
    """A checkout with a recorded agent, and a directory beside it that is nobody's business."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root = root
        self.outside = outside
        self.url = "http://127.0.0.1:1/v1"

    def run(self, *args: str, **environment: str) -> CommandResult:
        given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": self.url, **environment}
        return agentrun(*args, cwd=self.root, stdin=b"", **given)

    def command(self, name: str, **environment: str) -> CommandResult:
        if name == "record without a provider":
            return self.run(*COMMANDS[name])
        with ScriptedProvider(STORY.replace("[{text: Hi.}]", "[" + ", ".join(["{text: Hi.}"] * 6) + "]")) as server:
            self.url = f"{server.url}/v1"
            return self.run(*COMMANDS[name], **environment)

    def link(self, place: str, target: str) -> None:
        """Put a link where agentrun writes; what was there is moved outside, or is gone."""
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        there = self.outside / "was there"
        if path.is_dir():
            shutil.copytree(path, there)
            shutil.rmtree(path)
        elif path.exists():
            shutil.copy(path, there)
            path.unlink()
        real = {
            "a file": self.outside / "file",
            "a directory": self.outside / "directory",
            "nothing": self.outside / "new",
            "nothing in a missing directory": self.outside / "missing/new",
            "a copy of what was there": there,
            "a chain": self.outside / "chain",
        }[target]
        path.symlink_to(os.path.relpath(real, path.parent) if len(place) % 2 else real)

    def state(self) -> dict[str, Any]:
        """Everything outside: names, kinds, contents, and when they changed."""
        return dict(_state(self.outside))


def _state(directory: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted([directory, *directory.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        yield str(path), (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino, content)


@pytest.fixture(scope="module")
def recorded_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("links")
    root, outside = top / "repo", top / "outside"
    (root / "specs").mkdir(parents=True)
    (outside / "directory").mkdir(parents=True)
    (outside / "file").write_text("precious")
    (outside / "directory/default.yaml").write_text("precious")
    (outside / "chain").symlink_to("file")
    (root / "pyproject.toml").write_text("[tool.agentrun]\n")
    (root / "specs/a.yaml").write_text(SPEC)
    (root / "specs/a.cases.yaml").write_text(CASES)
    repository = Repository(root, outside)
    done = repository.command("record cases")
    assert done.code == 0, done.out + done.err
    assert repository.command("live in a session").code == 0
    for name in ("cassettes/a/unused.yaml", ".agentrun/recorded/a/default.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "cassettes/a/default.yaml", root / name)
    shutil.copy(root / "specs/__snapshots__/a/default.journal", root / "specs/__snapshots__/a/unused.journal")
    return top


@pytest.fixture
def repository(recorded_repository: Path, tmp_path: Path) -> Repository:
    shutil.copytree(recorded_repository, tmp_path / "top", symlinks=True)
    return Repository(tmp_path / "top/repo", tmp_path / "top/outside")


def run_with_link(repository: Repository, place: str, target: str, command: str) -> CommandResult:
    repository.link(place, target)
    before = repository.state()
    done = repository.command(command)
    assert repository.state() == before, (place, target, command, done.err)
    assert done.code != 70, done.err
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_link_each_command_writes(repository: Repository, command: str) -> None:
    """The twin of all that follows: a command that wrote nothing anyway would prove nothing."""
    if "record" in command:
        (repository.root / "specs/a.yaml").write_text(SPEC.replace("one word", "two words"))
    if command == "accept journals":
        (repository.root / "specs/__snapshots__/a/default.journal").write_text("another\n")
    if command == "lock":
        (repository.root / "specs/a.lock").unlink(missing_ok=True)
    before = dict(_state(repository.root))
    done = repository.command(command)
    after = dict(_state(repository.root))
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert done.code == (6 if command == "record without a provider" else 0), done.out + done.err
    assert changed


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("cassettes/a/.default.yaml.new", "record"),
        ("cassettes/a/.default.yaml.new", "record without a provider"),
        ("specs/.a.cases.yaml.new", "record a new case"),
    ],
)
def test_temporary_files_have_no_guessable_names(repository: Repository, place: str, command: str) -> None:
    done = run_with_link(repository, place, "a file", command)
    assert done.code == (6 if "without" in command else 0), done.err


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("cassettes", "record"),
        ("cassettes/a", "record"),
        ("cassettes/a/default.yaml", "record"),
        (".agentrun", "record"),
        (".agentrun", "live in a session"),
        (".agentrun/sessions/ada", "live in a session"),
        ("specs", "record"),
        ("specs", "lock"),
        ("specs/a.lock", "lock"),
        ("cassettes", "prune"),
    ],
)
def test_links_are_refused_with_both_paths(repository: Repository, place: str, command: str) -> None:
    done = run_with_link(repository, place, "a copy of what was there", command)
    assert done.code == 7, (done.out, done.err)
    assert (place in done.err, str(repository.outside / "was there") in done.err) == (True, True), done.err


def test_a_linked_directory_of_snapshots_is_refused(repository: Repository) -> None:
    (repository.root / "specs/__snapshots__/a/default.journal").write_text("another\n")
    done = run_with_link(repository, "specs/__snapshots__", "a copy of what was there", "accept journals")
    assert done.code != 0
    assert f"specs/__snapshots__ is a symbolic link to {repository.outside / 'was there'}" in done.out + done.err


def test_cassettes_variable_may_name_a_directory_outside(repository: Repository) -> None:
    """What the refusal advises works."""
    repository.link("cassettes", "a directory")
    refused = repository.command("record")
    directory = str(repository.outside / "directory")
    assert (refused.code, f"AGENTRUN_CASSETTES={directory}" in refused.err) == (7, True), refused.err
    done = repository.command("record", AGENTRUN_CASSETTES=directory)
    assert done.code == 0, done.err
    assert (repository.outside / "directory/a/default.yaml").is_file()
    replayed = repository.run("specs/a.yaml", AGENTRUN_CASSETTES=directory)
    assert replayed.out == "Hi.\n", replayed.err


def test_store_variable_may_name_a_directory_outside(repository: Repository) -> None:
    repository.link(".agentrun", "a directory")
    refused = repository.command("live in a session")
    directory = str(repository.outside / "directory")
    assert (refused.code, f"AGENTRUN_STORE={directory}" in refused.err) == (7, True), refused.err
    done = repository.command("live in a session", AGENTRUN_STORE=directory)
    assert done.code == 0, done.err
    assert (repository.outside / "directory/sessions/ada/runs").is_file()
    assert (repository.outside / "directory/.gitignore").read_text() == "*\n"


@pytest.mark.parametrize("setting", ["cassettes", "store"])
@pytest.mark.parametrize("value", ["../outside/directory", "/outside", "linked"])
def test_settings_name_directories_inside_the_project_only(repository: Repository, setting: str, value: str) -> None:
    (repository.root / "linked").symlink_to("../outside/directory")
    (repository.root / "pyproject.toml").write_text(f'[tool.agentrun]\n{setting} = "{value}"\n')
    before = repository.state()
    done = repository.command("record")
    assert (done.code, repository.state()) == (2, before)
    assert f"AGENTRUN_{setting.upper()} may name any directory" in done.err


def _random_attack(repository: Repository, number: int) -> None:
    chance = random.Random(number)  # noqa: S311  # the same links for everybody
    run_with_link(repository, chance.choice(LINKED_PATHS), chance.choice(TARGETS), chance.choice(list(COMMANDS)))


@pytest.mark.parametrize("number", range(10))
def test_random_links_change_nothing_outside(repository: Repository, number: int) -> None:
    _random_attack(repository, number)


@pytest.mark.long
@pytest.mark.parametrize("number", range(10, 540))
def test_many_random_links_change_nothing_outside(repository: Repository, number: int) -> None:
    _random_attack(repository, number)
