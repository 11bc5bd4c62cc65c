"""What `agentrun init` writes into `requirements-agents.txt`, by where agentrun was installed from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentrun.cli.init import make_requirements

from ..distributions import COMMIT, VCS, from_checkout, install_agentrun
from .command import CommandResult, agentrun

SECRET = "ghp_not-a-real-token-4711"
ADDRESS = "https://git.example/a/agentrun.git"


class Checkout:
    """A repository with one commit, as agentrun would be installed from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet")
        self.git("-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet", "--allow-empty", "-mx")
        self.commit = self.git("rev-parse", "HEAD").strip()

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def remote(self, url: str, name: str = "origin") -> Checkout:
        self.git("remote", "add", name, url)
        return self


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    found = Checkout(tmp_path / "checkout")
    monkeypatch.syspath_prepend(from_checkout(tmp_path / "site", found.folder))
    return found


def installed_requirement() -> str:
    """The last line of the file: what is installed."""
    return make_requirements()[0].splitlines()[-1]


def is_filled_in() -> bool:
    """Whether the file installs something; if not, it and the screen say what to fill in."""
    text, said = make_requirements()
    if said is None:
        return not installed_requirement().startswith("#")
    assert installed_requirement() == "# agentrun-harness @ git+https://HOST/OWNER/REPOSITORY@COMMIT"
    assert all(each.startswith("#") for each in text.splitlines())
    assert "set a repository and a commit in requirements-agents.txt" in text
    assert "set a repository and a commit in requirements-agents.txt" in said
    return False


def init(tmp_path: Path, site: Path) -> tuple[str, CommandResult]:
    """Run the real command. Neither its files nor its output contain a path of this machine or a secret."""
    (tmp_path / "work").mkdir()
    done = agentrun("init", "p", cwd=tmp_path / "work", PYTHONPATH=str(site))
    assert done.code == 0, done.err
    files = [path for path in (tmp_path / "work" / "p").rglob("*") if path.is_file()]
    written = "".join(path.read_text(encoding="utf-8") for path in files)
    for private in (str(tmp_path), "file://", SECRET):
        assert private not in written + done.out + done.err
    assert "run: pip install -r requirements-agents.txt\n" in written
    return (tmp_path / "work/p/requirements-agents.txt").read_text(encoding="utf-8").splitlines()[-1], done


def test_init_from_a_checkout_with_a_remote(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout").remote(f"https://ada:{SECRET}@git.example/a/agentrun.git")
    last, done = init(tmp_path, from_checkout(tmp_path / "site", checkout.folder, editable=True))
    assert last == f"agentrun-harness @ git+{ADDRESS}@{checkout.commit}"
    assert "set a repository" not in done.err


def test_init_from_a_checkout_without_a_remote(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout").remote(str(tmp_path / "elsewhere"))
    last, done = init(tmp_path, from_checkout(tmp_path / "site", checkout.folder))
    assert last == "# agentrun-harness @ git+https://HOST/OWNER/REPOSITORY@COMMIT"
    assert "set a repository and a commit in requirements-agents.txt" in done.err


def test_install_from_a_repository_pins_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    direct_url = {"url": f"https://{SECRET}@git.example/a/agentrun.git", "vcs_info": VCS}
    monkeypatch.syspath_prepend(install_agentrun(tmp_path / "site", direct_url))
    assert (installed_requirement(), make_requirements()[1]) == (f"agentrun-harness @ git+{ADDRESS}@{COMMIT}", None)


def test_install_from_an_index_pins_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_agentrun(tmp_path / "site"))
    assert (installed_requirement(), make_requirements()[1]) == ("agentrun-harness==7.8.9", None)


def test_existing_requirements_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "requirements-agents.txt").write_text("mine")
    done = agentrun("init", ".", cwd=tmp_path)
    assert (done.code, "requirements-agents.txt: exists and stays as it is" in done.err) == (0, True)
    assert (tmp_path / "requirements-agents.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", [{"archive_info": {}}, {"dir_info": {}}, {"vcs_info": VCS}])
def test_install_from_a_file_or_missing_folder_leaves_a_placeholder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, object]
) -> None:
    monkeypatch.syspath_prepend(install_agentrun(tmp_path / "site", {"url": (tmp_path / "gone").as_uri(), **kind}))
    assert not is_filled_in()


def test_origin_is_preferred_over_other_remotes(checkout: Checkout) -> None:
    assert not is_filled_in()
    checkout.remote(str(checkout.folder), "backup").remote("git@git.example:a/b.git", "fork")
    assert installed_requirement() == f"agentrun-harness @ git+ssh://git@git.example/a/b.git@{checkout.commit}"
    checkout.remote(ADDRESS)
    assert installed_requirement() == f"agentrun-harness @ git+{ADDRESS}@{checkout.commit}"


def test_remote_address_ignores_the_user_git_configuration(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text(f'[url "https://{SECRET}.example/"]\n  insteadOf = https://git.example/\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    checkout.remote(ADDRESS)
    assert SECRET in checkout.git("remote", "get-url", "origin")
    assert installed_requirement() == f"agentrun-harness @ git+{ADDRESS}@{checkout.commit}"


def test_checkout_without_a_commit_leaves_a_placeholder(checkout: Checkout) -> None:
    checkout.remote(ADDRESS).git("update-ref", "-d", "HEAD")
    assert not is_filled_in()


def test_copy_inside_another_repository_leaves_a_placeholder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Checkout(tmp_path / "other").remote(ADDRESS)
    (other.folder / "vendored").mkdir()
    monkeypatch.syspath_prepend(from_checkout(tmp_path / "site", other.folder / "vendored"))
    assert not is_filled_in()


def test_git_variables_of_another_repository_are_ignored(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.remote(ADDRESS)
    other = Checkout(tmp_path / "other").remote("https://other.example/a")
    expected = installed_requirement()
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(checkout.folder))
    assert installed_requirement() == expected


@pytest.mark.parametrize("search", ["", "bin", "."])
def test_without_git_a_placeholder_is_left_and_no_local_git_runs(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    """A program called `git` in the current folder is not git."""
    checkout.remote(ADDRESS)
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "git").write_text(f"#!/bin/sh\n: > '{tmp_path}/ran'\n")
        (folder / "git").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", search)
    assert not is_filled_in()
    assert not (tmp_path / "ran").exists()


def test_hooks_and_filters_of_the_repository_are_not_run(checkout: Checkout, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n: > '{tmp_path}/ran'\n")
    program.chmod(0o755)
    checkout.remote(ADDRESS)
    (checkout.folder / "a").write_text("a")
    (checkout.folder / ".gitattributes").write_text("* filter=x diff=x\n")
    checkout.git("add", "a")
    os.utime(checkout.folder / "a", (1, 1))
    hooks = checkout.folder / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "pre-auto-gc", "reference-transaction"):
        (hooks / hook).symlink_to(program)
    for name in ("fsmonitor", "pager", "sshCommand", "editor", "askPass", "gitProxy"):
        checkout.git("config", f"core.{name}", str(program))
    for name in ("filter.x.clean", "filter.x.process", "diff.x.textconv", "diff.external", "credential.helper"):
        checkout.git("config", name, str(program))
    for command in ("rev-parse", "config"):
        checkout.git("config", f"alias.{command}", f"!{program}")
    checkout.git("config", "core.hooksPath", str(hooks))
    (tmp_path / "ran").unlink(missing_ok=True)
    assert installed_requirement().endswith(checkout.commit)
    assert not (tmp_path / "ran").exists()
