"""`requirements-agents.txt` of a new project: what its workflow installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from agentrun.distribution import DISTRIBUTION_NAME, git_pin, install_origin

FILE = "requirements-agents.txt"
_HEAD = "# The workflow .github/workflows/agents.yml installs this.\n"
_PUSH = "# This is the commit of the checkout that wrote the file. Push it before the workflow runs.\n"
_UNKNOWN = "This agentrun was not installed from an address that other machines can reach."
_FILL_IN = f"Fill in a repository and a commit in {FILE} and remove the `#`, or the workflow cannot install it:"
_EXAMPLE = f"{DISTRIBUTION_NAME} @ git+https://HOST/OWNER/REPOSITORY@COMMIT"


def requirements() -> tuple[str, str | None]:
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
