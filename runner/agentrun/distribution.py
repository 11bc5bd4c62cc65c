"""The installed distribution: its version, where it was installed from, and how to install it again.

Rule 1  The distribution is called `agentrun-harness`; the package and the command are called `agentrun`.
Rule 2  A hint names a package index only if this installation came from one, because another index may have a
        different package with that name.
Rule 3  A requirement for other machines contains no credentials and no path of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from shlex import quote
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

DISTRIBUTION_NAME = "agentrun-harness"
_PACKAGE = Path(__file__).parent
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCP = re.compile(r"(?P<user>[^@:/]+@)?(?P<host>[^@:/]{2,}):/?(?P<path>[^:/].*)")
"""`git@host:path`. A host of one letter is a Windows drive, and `x::y` is a remote helper of git."""
_URL = re.compile(
    r"(?P<scheme>https?|ssh|git)://(?:(?P<user>[^@/:]*)(?::[^@/]*)?@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<port>:[0-9]+)?(?P<path>/[A-Za-z0-9._~%+/-]+)"
)
_THIS_MACHINE = re.compile(r"file|(?:.*\.)?localhost\.?|127\..*|0\..*", re.IGNORECASE)


class InstallOrigin(NamedTuple):
    """Where the running code was installed from. `pin` and `checkout` are empty if that is unknown or a file."""

    pin: str = ""
    """The part after the name in a requirement that works on any machine: `==0.1.0` or ` @ git+https://…@COMMIT`."""
    checkout: Path | None = None
    editable: bool = False


class _DirInfo(msgspec.Struct):
    editable: bool = False


class _VcsInfo(msgspec.Struct):
    vcs: str
    commit_id: str


class _DirectUrl(msgspec.Struct):
    """`direct_url.json` of PEP 610. Installers write it for every package that does not come from an index."""

    url: str
    dir_info: _DirInfo | None = None
    vcs_info: _VcsInfo | None = None
    subdirectory: str = ""

    def checkout(self) -> Path | None:
        return None if self.dir_info is None else Path(unquote(urlsplit(self.url).path))


def version() -> str:
    dist = _distribution()
    return dist.version if dist else "unknown"


def install_origin() -> InstallOrigin:
    dist = _distribution()
    if dist is None:  # a checkout that is not installed, found by PYTHONPATH
        return InstallOrigin(checkout=_PACKAGE.parents[1], editable=True)
    if dist.read_text("direct_url.json") is None:
        return InstallOrigin(pin=f"=={dist.version}")
    direct = _direct_url(dist)
    if direct is None or direct.subdirectory:
        return InstallOrigin()
    if direct.vcs_info is not None:
        return InstallOrigin(pin=git_pin(direct.url, direct.vcs_info.commit_id) if direct.vcs_info.vcs == "git" else "")
    return InstallOrigin(checkout=direct.checkout(), editable=direct.dir_info is not None and direct.dir_info.editable)


def install_hint(extra: str = "") -> str:
    """How to install agentrun again with its dependencies, or with an extra: one sentence without a full stop."""
    origin = install_origin()
    extras = f"[{extra}]" if extra else ""
    if origin.pin:
        return f"run pip install {quote(f'{DISTRIBUTION_NAME}{extras}{origin.pin}')}"
    if origin.checkout:
        return f"run pip install {'-e ' * origin.editable}{quote(f'.{extras}')} in the checkout of agentrun"
    return f"install agentrun again from where you got it{f', with the extra {extra}' if extra else ''}"


def git_pin(url: str, commit: str) -> str:
    """` @ git+URL@COMMIT` without credentials, or an empty text if other machines cannot install from this address."""
    if scp := "://" not in url and _SCP.fullmatch(url):
        url = f"ssh://{scp['user'] or ''}{scp['host']}/{scp['path']}"
    parts = _URL.fullmatch(url)
    if parts is None or _THIS_MACHINE.fullmatch(parts["host"]) or not _COMMIT.fullmatch(commit):
        return ""
    user = "git@" if (parts["scheme"], parts["user"]) == ("ssh", "git") else ""
    return f" @ git+{parts['scheme']}://{user}{parts['host']}{parts['port'] or ''}{parts['path']}@{commit}"


def rival_distributions() -> dict[str, list[str]]:
    """Other distributions that provide something called `agentrun`: a module, a command or both."""
    commands = metadata.entry_points(group="console_scripts", name="agentrun")
    providers = {"module": metadata.packages_distributions().get("agentrun", [])}
    providers["command"] = [command.dist.name for command in commands if command.dist]
    names = {str(name) for each in providers.values() for name in each}
    rivals = sorted(name for name in names if re.sub(r"[-_.]+", "-", name).lower() != DISTRIBUTION_NAME)
    return {name: [kind for kind, names in providers.items() if name in names] for name in rivals}


def _distribution() -> metadata.Distribution | None:
    """The metadata of the running code. A folder on `sys.path` may contain metadata of this name without the code."""
    for dist in metadata.distributions(name=DISTRIBUTION_NAME):
        direct = _direct_url(dist)
        checkout = direct and direct.checkout()
        paths = [Path(str(dist.locate_file("agentrun"))), *([checkout / "runner" / "agentrun"] if checkout else [])]
        if any(path.exists() and path.samefile(_PACKAGE) for path in paths):
            return dist
    return None


def _direct_url(dist: metadata.Distribution) -> _DirectUrl | None:
    try:
        return msgspec.json.decode(dist.read_text("direct_url.json") or "", type=_DirectUrl)
    except msgspec.DecodeError:
        return None


def run_git(checkout: Path, *words: str) -> tuple[int | None, str]:
    """The exit code of a git command, and its output if that is 0. None: git cannot be run."""
    done = _run_git(checkout, words)
    if done is None:
        return None, ""
    return done.returncode, "" if done.returncode else done.stdout.decode(errors="replace")


def git_output(checkout: Path, *words: str, stdin: bytes = b"") -> bytes | None:
    """What a git command writes. None: it failed, or git cannot be run."""
    done = _run_git(checkout, words, stdin)
    return None if done is None or done.returncode else done.stdout


def _run_git(checkout: Path, words: tuple[str, ...], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes] | None:
    """Run a git command. The commands that agentrun uses change neither index nor work tree, no hook or filter of the
    repository runs, and objects that a partial clone lacks are not fetched."""
    git = shutil.which("git")
    if git is None or not os.path.isabs(git):
        return None
    command = [git, "-C", str(checkout), "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", *words]
    # Inside a hook of another repository, GIT_DIR and similar variables point to that repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1"}
    try:
        return subprocess.run(command, env=env, input=stdin, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
