"""The `.env` file of a project: what it sets, what it never sets, and when it is not read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentrun.engine.env_file import EnvFile, read_project_env_file
from agentrun.engine.settings import load_settings
from agentrun.errors import HostError

SPEC_VARIABLES = ("SHOP_TOKEN", "SHOP_BASE_URL", "AGENTRUN_TRUST_ENV", "PATH", "PYTHONPATH", "HTTPS_PROXY", "no_proxy")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", *SPEC_VARIABLES):
        if name != "PATH":
            monkeypatch.delenv(name, raising=False)


def write(folder: Path, text: str) -> EnvFile:
    (folder / ".env").write_text(text, encoding="utf-8")
    return read_project_env_file(folder, SPEC_VARIABLES)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


def test_it_gives_provider_keys_and_variables_that_the_spec_names(tmp_path: Path) -> None:
    keys = "# keys\nexport OPENAI_API_KEY='k-1' # mine\nANTHROPIC_API_KEY=\n"
    file = write(tmp_path, f'{keys}SHOP_TOKEN="a b"\nOTHER=x\n')
    assert file.headline == "OPENAI_API_KEY, SHOP_TOKEN from .env"
    settings = load_settings(file)
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == settings.secret("OPENAI_API_KEY").reveal() == "k-1"
    assert settings.secret("SHOP_TOKEN").reveal() == "a b"
    for name in ("OTHER", "ANTHROPIC_API_KEY"):
        with pytest.raises(HostError, match=f"{name} is not set"):
            settings.secret(name)


@pytest.mark.parametrize("name", [name for name in SPEC_VARIABLES if name != "SHOP_TOKEN"])
def test_it_never_gives_variables_that_change_where_requests_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    file = write(tmp_path, f"{name}=1\n")
    expected = name.startswith("AGENTRUN_") or name.endswith("_BASE_URL")
    headline = f"not used from .env: {name} (export it instead)" if expected else ""
    assert (file.given, file.headline) == (frozenset(), headline)
    settings = load_settings(file)
    assert (settings.trust_env, settings.proxies()) == (False, {})
    with pytest.raises(HostError) as caught:
        settings.secret(name)
    assert caught.value.hint == f".env cannot set {name}: export {name}=…"


@pytest.mark.parametrize("existing", ["of the environment", ""])
def test_variables_of_the_environment_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", existing)
    monkeypatch.setenv("SHOP_TOKEN", existing)
    file = write(tmp_path, "OPENAI_API_KEY=of the file\nSHOP_TOKEN=of the file\n")
    settings = load_settings(file)
    assert (file.headline, settings.has("OPENAI_API_KEY"), settings.has("SHOP_TOKEN")) == ("", *[bool(existing)] * 2)
    if existing:
        assert settings.secret("OPENAI_API_KEY").reveal() == settings.secret("SHOP_TOKEN").reveal() == existing
    else:
        with pytest.raises(HostError) as caught:
            settings.secret("SHOP_TOKEN")
        assert (caught.value.hint or "").endswith("takes precedence over .env: run unset SHOP_TOKEN")


def test_dollar_signs_in_values_are_kept(tmp_path: Path) -> None:
    assert write(tmp_path, "SHOP_TOKEN=a${HOME}$b\n").value("SHOP_TOKEN") == "a${HOME}$b"


@pytest.mark.parametrize("kind", ["nothing", "directory"])
def test_missing_file_or_virtual_environment_gives_nothing(tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        (tmp_path / ".env").mkdir()
    file = read_project_env_file(tmp_path, SPEC_VARIABLES)
    assert (file.given, file.unread) == (frozenset(), "")


def test_file_that_git_tracks_is_not_read(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert write(tmp_path, "OPENAI_API_KEY=k\n").given == {"OPENAI_API_KEY"}
    git(tmp_path, "add", "-f", ".env")
    file = read_project_env_file(tmp_path, SPEC_VARIABLES)
    assert (file.values, file.headline) == ({}, file.unread)
    assert file.unread.startswith(".env was not read because git tracks it: run git rm --cached .env")
    with pytest.raises(HostError) as caught:
        load_settings(file).secret("OPENAI_API_KEY")
    assert caught.value.hint == file.unread
    git(tmp_path, "rm", "-q", "--cached", ".env")
    assert read_project_env_file(tmp_path, SPEC_VARIABLES).given == {"OPENAI_API_KEY"}


def test_file_is_not_read_if_git_cannot_say_whether_it_is_tracked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", str(project))
    assert "git cannot say" in write(project, "OPENAI_API_KEY=k\n").unread


def test_git_variables_of_another_repository_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, project = tmp_path / "other", tmp_path / "project"
    for folder in (other, project):
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / ".env").write_text("OPENAI_API_KEY=k\n")
    git(project, "add", "-f", ".env")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert "git tracks it" in read_project_env_file(project, SPEC_VARIABLES).unread


@pytest.mark.parametrize("target", ["real.env", "none"])
def test_symbolic_link_is_not_read(tmp_path: Path, target: str) -> None:
    (tmp_path / "real.env").write_text("OPENAI_API_KEY=k\n")
    (tmp_path / ".env").symlink_to(target)
    file = read_project_env_file(tmp_path, SPEC_VARIABLES)
    assert (file.given, "symbolic link" in file.unread) == (frozenset(), True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "OPENAI_API_KEY=k\n")
    os.chown(tmp_path / ".env", 12345, -1)
    file = read_project_env_file(tmp_path, SPEC_VARIABLES)
    assert (file.given, file.unread) == (frozenset(), ".env was not read because it belongs to another user")


@pytest.mark.parametrize("kind", ["fifo", "huge", "latin-1"])
def test_other_files_are_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".env"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"OPENAI_API_KEY=" + (b"k" * 2**21 if kind == "huge" else "é".encode("latin-1")))
    file = read_project_env_file(tmp_path, SPEC_VARIABLES)
    assert (file.given, file.unread[:18]) == (frozenset(), ".env was not read:")
