"""`agentrun init DIR`"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from agentrun.cli.console import print_stderr
from agentrun.distribution import DISTRIBUTION_NAME, git_pin, install_origin

STARTER = Path(__file__).parent / "starter"
STARTER_CASSETTE = "cassettes/hello/default.yaml"
RENAMED_FILES = {"gitignore": ".gitignore", "workflow.yml": ".github/workflows/agents.yml"}
"""Files with another name here, because tools would read them as files of this project."""


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Create a small project in DIRECTORY: a spec, a test case, its cassette and a workflow for CI.

    Existing files are never changed: if one of them is in the way, nothing is written.

    \b
    Examples:
      agentrun init my-agent
      cd my-agent && agentrun specs/hello.yaml && agentrun test
    """
    from agentrun.files import user_directory_tree

    if not str(directory).strip(". "):
        directory = Path.cwd()
    text, to_fill_in = make_requirements()
    files = {**dict(_project_files()), REQUIREMENTS_FILE: text.encode()}
    taken = [name for name in files if os.path.lexists(directory / name)] or _blocking_files(directory, files)
    if taken:
        hint = ", or add `[tool.agentrun]` to your pyproject.toml" if "pyproject.toml" in taken else ""
        raise click.UsageError(
            f"{directory} already has {', '.join(taken)}, so nothing was written; choose another directory{hint}"
        )
    tree = user_directory_tree(directory)
    for name, content in files.items():
        tree.write(tree.root / name, content)
        print_stderr(f"  {name}")
    print_stderr(f"\nCreated a project in {directory}\nNext:\n  cd {shlex.quote(str(directory))}")
    print_stderr("  agentrun specs/hello.yaml\n  agentrun test")
    if to_fill_in:
        print_stderr(f"\n{to_fill_in}")


def _blocking_files(directory: Path, files: Iterable[str]) -> list[str]:
    """Files where the project needs folders."""
    folders = {directory, *(directory / parent for name in files for parent in Path(name).parents)}
    return sorted(str(folder) for folder in folders if os.path.lexists(folder) and not folder.is_dir())


def _project_files() -> Iterator[tuple[str, bytes]]:
    """The files of a new project: the starter's files, and the schemas for editors."""
    from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text

    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(STARTER).as_posix()
            content = path.read_bytes()
            yield RENAMED_FILES.get(name, name), _update_cassette(content) if name == STARTER_CASSETTE else content
    for schema in SCHEMA_NAMES:
        yield f"schemas/{schema}.schema.json", schema_text(schema).encode()


def _update_cassette(cassette: bytes) -> bytes:
    """The cassette of the starter with the current time and the fingerprint of its spec. It was written by hand."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package

    package = compile_spec(STARTER / "specs" / "hello.yaml").package
    assert package is not None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    text = cassette.decode()
    for key, value in (("fingerprint", seal_package(package).fingerprint), ("recorded_at", f"'{now}'")):
        text = re.sub(f"(?m)^  {key}: .*$", f"  {key}: {value}", text, count=1)
    return text.encode()


REQUIREMENTS_FILE = "requirements-agents.txt"
_HEAD = "# Installed by the workflow .github/workflows/agents.yml.\n"
_PUSH = "# The commit of the checkout that wrote this file. Push it before the workflow runs.\n"
_UNKNOWN = "This agentrun was not installed from an address that other machines can reach."
_FILL_IN = f"Before the workflow can install it, set a repository and a commit in {REQUIREMENTS_FILE}, without the `#`:"
_EXAMPLE = f"{DISTRIBUTION_NAME} @ git+https://HOST/OWNER/REPOSITORY@COMMIT"


def make_requirements() -> tuple[str, str | None]:
    """The text of `requirements-agents.txt`, and a message if the user has to edit it first."""
    origin = install_origin()
    if origin.pin:
        return f"{_HEAD}{DISTRIBUTION_NAME}{origin.pin}\n", None
    if origin.checkout and (pin := _checkout_pin(origin.checkout)):
        return f"{_HEAD}{_PUSH}{DISTRIBUTION_NAME}{pin}\n", None
    return f"{_HEAD}# {_UNKNOWN}\n# {_FILL_IN}\n# {_EXAMPLE}\n", f"{_UNKNOWN}\n{_FILL_IN}\n  {_EXAMPLE}"


def _checkout_pin(checkout: Path) -> str:
    """The commit of a checkout with the URL of a remote, `origin` first. Empty without git, a commit or a remote."""
    top, _, commit = _git(checkout, "rev-parse", "--show-toplevel", "HEAD").strip().partition("\n")
    if not top or not os.path.samefile(top, checkout):  # inside the repository of another project
        return ""
    listed = _git(checkout, "config", "--local", "--null", "--get-regexp", r"^remote\..*\.url$")
    remotes = [item.partition("\n") for item in listed.split("\0")]
    urls = [url for _, _, url in sorted(remotes, key=lambda remote: remote[0] != "remote.origin.url")]
    return next((pin for url in urls if (pin := git_pin(url, commit))), "")


def _git(checkout: Path, *words: str) -> str:
    """The output of git, or nothing. These commands use neither index nor work tree, so no hook or filter runs."""
    git = shutil.which("git")
    if git is None or not os.path.isabs(git):
        return ""
    command = [git, "-C", str(checkout), "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", *words]
    # Inside a hook of another repository, GIT_DIR and similar variables point to that repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
