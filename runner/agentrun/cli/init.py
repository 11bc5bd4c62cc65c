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
"""Files that are called otherwise here: their names would mean something to this project too."""


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Make a small project in DIRECTORY that validates, compiles, replays and is tested.

    Existing files are never touched: if one is in the way, nothing is written.

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
        hint = ", or add `[tool.agentrun]` to your pyproject.toml by hand" if "pyproject.toml" in taken else ""
        raise click.UsageError(
            f"{directory} already has {', '.join(taken)}; nothing was written: choose another name{hint}"
        )
    tree = user_directory_tree(directory)
    for name, content in files.items():
        tree.write(tree.root / name, content)
        print_stderr(f"  {name}")
    print_stderr(f"\nA project is in {directory}\nNext:\n  cd {shlex.quote(str(directory))}")
    print_stderr("  agentrun specs/hello.yaml\n  agentrun test")
    if to_fill_in:
        print_stderr(f"\n{to_fill_in}")


def _blocking_files(directory: Path, files: Iterable[str]) -> list[str]:
    """Files that stand where the project needs folders."""
    folders = {directory, *(directory / parent for name in files for parent in Path(name).parents)}
    return sorted(str(folder) for folder in folders if os.path.lexists(folder) and not folder.is_dir())


def _project_files() -> Iterator[tuple[str, bytes]]:
    """What a project begins with: the starter's files, and the schemas for editors."""
    from agentrun.compiler.schema_files import SCHEMA_NAMES, schema_text

    for path in sorted(STARTER.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(STARTER).as_posix()
            content = path.read_bytes()
            yield RENAMED_FILES.get(name, name), _update_cassette(content) if name == STARTER_CASSETTE else content
    for schema in SCHEMA_NAMES:
        yield f"schemas/{schema}.schema.json", schema_text(schema).encode()


def _update_cassette(cassette: bytes) -> bytes:
    """The recording, which was written by hand and says so, as one of the spec beside it, made now."""
    from agentrun.compiler.compile import compile_spec
    from agentrun.compiler.package_file import seal_package

    package = compile_spec(STARTER / "specs" / "hello.yaml").package
    assert package is not None
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    text = cassette.decode()
    for key, value in (("fingerprint", seal_package(package).fingerprint), ("recorded_at", f"'{now}'")):
        text = re.sub(f"(?m)^  {key}: .*$", f"  {key}: {value}", text, count=1)
    return text.encode()


# --- `requirements-agents.txt` of a new project: what its workflow installs -----------------------------------


REQUIREMENTS_FILE = "requirements-agents.txt"
_HEAD = "# The workflow .github/workflows/agents.yml installs this.\n"
_PUSH = "# This is the commit of the checkout that wrote the file. Push it before the workflow runs.\n"
_UNKNOWN = "This agentrun was not installed from an address that other machines can reach."
_FILL_IN = (
    f"Fill in a repository and a commit in {REQUIREMENTS_FILE} and remove the `#`, or the workflow cannot install it:"
)
_EXAMPLE = f"{DISTRIBUTION_NAME} @ git+https://HOST/OWNER/REPOSITORY@COMMIT"


def make_requirements() -> tuple[str, str | None]:
    """The text of the file, and what the user has to fill in before the workflow can run."""
    came = install_origin()
    if came.pin:
        return f"{_HEAD}{DISTRIBUTION_NAME}{came.pin}\n", None
    if came.checkout and (pin := _checkout_pin(came.checkout)):
        return f"{_HEAD}{_PUSH}{DISTRIBUTION_NAME}{pin}\n", None
    return f"{_HEAD}# {_UNKNOWN}\n# {_FILL_IN}\n# {_EXAMPLE}\n", f"{_UNKNOWN}\n{_FILL_IN}\n  {_EXAMPLE}"


def _checkout_pin(checkout: Path) -> str:
    """The commit of a checkout at one of its remotes, `origin` first; nothing without git, a commit or a remote."""
    top, _, commit = _git(checkout, "rev-parse", "--show-toplevel", "HEAD").strip().partition("\n")
    if not top or not os.path.samefile(top, checkout):  # inside the repository of another project
        return ""
    listed = _git(checkout, "config", "--local", "--null", "--get-regexp", r"^remote\..*\.url$")
    remotes = [item.partition("\n") for item in listed.split("\0")]
    urls = [url for _, _, url in sorted(remotes, key=lambda remote: remote[0] != "remote.origin.url")]
    return next((pin for url in urls if (pin := git_pin(url, commit))), "")


def _git(checkout: Path, *words: str) -> str:
    """What git says, or nothing. These commands use neither index nor work tree, so no hook or filter is run."""
    git = shutil.which("git")
    if git is None or not os.path.isabs(git):
        return ""
    command = [git, "-C", str(checkout), "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", *words]
    # Under a hook of another repository, GIT_DIR and the like would lead there.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
