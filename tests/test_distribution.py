"""Where agentrun was installed from, and how it can be installed again."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hatchling.builders.wheel import WheelBuilder

from agentrun.distribution import DISTRIBUTION_NAME, git_pin, install_hint, install_origin, rival_distributions, version

from .distributions import COMMIT, ROOT, VCS, install, install_agentrun

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHECKOUT = {"url": "file:///srv/a%20b", "dir_info": {}}
REPOSITORY = "https://git.example/a/agentrun.git"
PIN = f" @ git+{REPOSITORY}@{COMMIT}"
AGAIN = "install agentrun again from where you got it"


def test_the_name_and_version_are_those_of_pyproject() -> None:
    assert (DISTRIBUTION_NAME, version()) == (PYPROJECT["name"], PYPROJECT["version"])
    assert PYPROJECT["scripts"] == {"agentrun": "agentrun.__main__:main"}
    assert f"{DISTRIBUTION_NAME}[mcp,test]" in PYPROJECT["optional-dependencies"]["dev"]


@pytest.mark.parametrize(
    ("direct_url", "plain", "extra"),
    [
        (None, f"run pip install {DISTRIBUTION_NAME}==7.8.9", f"run pip install '{DISTRIBUTION_NAME}[test]==7.8.9'"),
        (
            CHECKOUT,
            "run pip install . in the checkout of agentrun",
            "run pip install '.[test]' in the checkout of agentrun",
        ),
        (
            {**CHECKOUT, "dir_info": {"editable": True}},
            "run pip install -e . in the checkout of agentrun",
            "run pip install -e '.[test]' in the checkout of agentrun",
        ),
        (
            {"url": REPOSITORY, "vcs_info": VCS},
            f"run pip install '{DISTRIBUTION_NAME}{PIN}'",
            f"run pip install '{DISTRIBUTION_NAME}[test]{PIN}'",
        ),
        ({"url": "file:///srv/a", "vcs_info": VCS}, AGAIN, f"{AGAIN}, with the extra test"),
        ({"url": REPOSITORY, "vcs_info": {**VCS, "vcs": "hg"}}, AGAIN, f"{AGAIN}, with the extra test"),
        ({"url": REPOSITORY, "vcs_info": VCS, "subdirectory": "x"}, AGAIN, f"{AGAIN}, with the extra test"),
        ({"url": "file:///srv/a.whl", "archive_info": {}}, AGAIN, f"{AGAIN}, with the extra test"),
        ("{", AGAIN, f"{AGAIN}, with the extra test"),
        ("", AGAIN, f"{AGAIN}, with the extra test"),
    ],
    ids=["index", "checkout", "editable", "git", "local git", "other vcs", "subdirectory", "file", "damaged", "empty"],
)
def test_install_hint_repeats_the_way_of_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: Any, plain: str, extra: str
) -> None:
    monkeypatch.syspath_prepend(install_agentrun(tmp_path / "site", direct_url))
    assert (version(), install_hint(), install_hint("test")) == ("7.8.9", plain, extra)


def test_the_path_of_a_checkout_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_agentrun(tmp_path / "site", CHECKOUT))
    assert install_origin().checkout == Path("/srv/a b")


def test_metadata_beside_other_code_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that is on `sys.path` cannot make a hint install from an index, or from an address of its own."""
    before = (version(), install_origin())
    install(tmp_path / "a", DISTRIBUTION_NAME, "6.6.6")
    install(
        tmp_path / "b",
        DISTRIBUTION_NAME,
        "6.6.6",
        **{"direct_url.json": msgspec.json.encode({"url": REPOSITORY, "vcs_info": VCS}).decode()},
    )
    (tmp_path / "b" / "agentrun").mkdir()
    for folder in ("a", "b"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert (version(), install_origin()) == before


def test_checkout_that_is_not_installed_gets_an_editable_hint(tmp_path: Path) -> None:
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    code = "from agentrun.distribution import *; print(version(), install_hint('mcp'))"
    places = f"import sys; sys.path[:0] = {[str(ROOT / 'runner'), str(tmp_path)]!r}"
    command = [sys.executable, "-I", "-S", "-c", f"{places}; {code}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "unknown run pip install -e '.[mcp]' in the checkout of agentrun\n"


@pytest.mark.long
@pytest.mark.skipif(find_spec("pip") is None, reason="this environment was made without pip")
@pytest.mark.parametrize("source", ["index", "checkout", "file"])
def test_origin_is_read_from_a_real_pip_install(tmp_path: Path, source: str) -> None:
    """`direct_url.json` is as the tests above write it."""
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    what = {
        "index": ["--no-index", "--find-links", str(tmp_path), DISTRIBUTION_NAME],
        "checkout": [str(ROOT)],
        "file": [wheel],
    }
    target = ["--no-deps", "--no-build-isolation", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", "-qq", *target, *what[source]], check=True)
    code = "from agentrun.distribution import install_origin; print(*install_origin(), sep='|')"
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    expected = {"index": f"=={version()}|None|False", "checkout": f"|{ROOT}|False", "file": "|None|False"}
    assert said == f"{expected[source]}\n"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (REPOSITORY, REPOSITORY),
        ("https://ada:ghp_secret@git.example/a/b.git", "https://git.example/a/b.git"),
        ("https://ghp_secret@git.example:8443/a/b", "https://git.example:8443/a/b"),
        ("https://:s3cr$t!@git.example/a/b", "https://git.example/a/b"),
        ("http://git.example/a/b", "http://git.example/a/b"),
        ("git://git.example/a/b", "git://git.example/a/b"),
        ("ssh://git@git.example:22/a/b", "ssh://git@git.example:22/a/b"),
        ("ssh://git:secret@git.example/a/b", "ssh://git@git.example/a/b"),
        ("ssh://ada@git.example/a/b", "ssh://git.example/a/b"),
        ("git@git.example:a/b.git", "ssh://git@git.example/a/b.git"),
        ("git@git.example:/srv/b.git", "ssh://git@git.example/srv/b.git"),
        ("git.example:~b/c", "ssh://git.example/~b/c"),
    ],
)
def test_git_pin_removes_credentials_from_the_address(url: str, address: str) -> None:
    assert git_pin(url, COMMIT) == f" @ git+{address}@{COMMIT}"


@pytest.mark.parametrize(
    "url",
    [
        *("", ".", "/srv/a", "../a", "a/b", "./a:b", "file:///srv/a", "C:/a", r"C:\a", "file:a"),
        *("http://localhost/a", "http://LOCALHOST:3000/a", "ssh://git@127.0.0.1/a", "git@localhost:a", "http://[::1]/a"),
        *("ext::sh -c x", "ext::x", "hg::https://git.example/a", "git+https://git.example/a", "ftp://git.example/a"),
        *("https://git.example", "https://git.example/", "https://git.example/a?token=x", "https://git.example/a#x"),
        *("https://git.example/a b", "https://git.example/a\n--index-url=x", "https://git.example/${HOME}", "https://a@b@c/d"),
        *("https://ada:se/cret@git.example/a", "https://ada/secret@git.example/a", "https://-o/a", "git@-o:a", "https://ex\u00e4mple/a"),
    ],
)  # fmt: skip
def test_git_pin_refuses_local_and_unsafe_addresses(url: str) -> None:
    assert git_pin(url, COMMIT) == ""


@pytest.mark.parametrize("commit", ["", "main", COMMIT[:12], COMMIT.upper(), f"{COMMIT}\n", f"{COMMIT}#egg=x"])
def test_git_pin_refuses_anything_but_a_full_commit(commit: str) -> None:
    assert git_pin(REPOSITORY, commit) == ""


def test_other_distributions_that_provide_agentrun_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "[console_scripts]\nagentrun = other:main\n"
    install(tmp_path, "agentrun", RECORD="agentrun/__init__.py,,\n", **{"entry_points.txt": command})
    install(tmp_path, "single-file", RECORD="agentrun.py,,\n")
    install(tmp_path, "commands", RECORD="other.py,,\n", **{"entry_points.txt": command})
    install(
        tmp_path, "innocent", RECORD="agentrunner.py,,\n", **{"entry_points.txt": command.replace("run =", "runs =")}
    )
    install(tmp_path, "Agentrun.Harness", RECORD="agentrun/__init__.py,,\n", **{"entry_points.txt": command})
    assert rival_distributions() == {}
    monkeypatch.syspath_prepend(tmp_path)
    assert rival_distributions() == {
        "agentrun": ["module", "command"],
        "commands": ["command"],
        "single-file": ["module"],
    }
