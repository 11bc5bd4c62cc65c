"""A project compiles to the same bytes in every process, environment and folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.compiler.package_file import parse_package

from ..full_spec import project
from ..schemas import ROOT

# Compiles the spec it is given and prints the fingerprint and the package file. Asserts that the world is as asked:
# a test of another locale that quietly ran in this one would prove nothing.
COMPILE = """
import json, locale, os, sys, time
asked = json.loads(sys.argv[2])
os.umask(asked.get("umask", 0o022))
from agentrun.compiler.compile import compile
from agentrun.compiler.package_file import package_bytes
assert sys.flags.hash_randomization == (os.environ.get("PYTHONHASHSEED") != "0")
assert sys.flags.optimize == asked.get("optimize", 0)
assert time.tzname[0] == asked.get("zone", time.tzname[0]), time.tzname
file = compile(sys.argv[1])
sys.stdout.buffer.write(file.fingerprint.encode() + b"\\n" + package_bytes(file))
"""

PLAIN_ENVIRONMENT = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def compile_in_process(spec: str, cwd: Path, env: dict[str, str], *flags: str, **asked: Any) -> bytes:
    """What a fresh process makes of a spec. It sees no variables but these."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", COMPILE, spec, json.dumps(asked)],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runner"), **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def expected_package(spec: Path) -> bytes:
    made = compile_in_process(str(spec), spec.parent, PLAIN_ENVIRONMENT)
    fingerprint, data = made.split(b"\n", 1)
    assert parse_package(data, spec).fingerprint.encode() == fingerprint
    return made


ENVIRONMENTS: dict[str, dict[str, str]] = {
    "hash seed 1": {**PLAIN_ENVIRONMENT, "PYTHONHASHSEED": "1"},
    "hash seed 4242": {**PLAIN_ENVIRONMENT, "PYTHONHASHSEED": "4242"},
    "random hash seed": {key: value for key, value in PLAIN_ENVIRONMENT.items() if key != "PYTHONHASHSEED"},
    "locale C": {**PLAIN_ENVIRONMENT, "LC_ALL": "C", "LANG": "C"},
    "locale C without utf-8": {**PLAIN_ENVIRONMENT, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "a locale that is not there": {**PLAIN_ENVIRONMENT, "LC_ALL": "tr_TR.ISO-8859-9", "LANG": "tr_TR.ISO-8859-9"},
    "no locale": {"PYTHONHASHSEED": "0"},
    "keys in the environment": {**PLAIN_ENVIRONMENT, "SHOP_TOKEN": "abc", "LLM_KEY": "def", "LANG": "de_DE.UTF-8"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_variables_do_not_change_the_package(name: str, spec: Path, expected_package: bytes) -> None:
    assert compile_in_process(str(spec), spec.parent, ENVIRONMENTS[name]) == expected_package


@pytest.mark.parametrize(("variable", "zone"), [("XYZ+11:30", "XYZ"), ("ABC-14", "ABC")])
def test_time_zone_does_not_change_the_package(variable: str, zone: str, spec: Path, expected_package: bytes) -> None:
    assert (
        compile_in_process(str(spec), spec.parent, {**PLAIN_ENVIRONMENT, "TZ": variable}, zone=zone) == expected_package
    )


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_umask_does_not_change_the_package(umask: int, spec: Path, expected_package: bytes) -> None:
    assert compile_in_process(str(spec), spec.parent, PLAIN_ENVIRONMENT, "-B", umask=umask) == expected_package


@pytest.mark.parametrize(("flag", "level"), [("-O", 1), ("-OO", 2)])
def test_python_optimisation_does_not_change_the_package(
    flag: str, level: int, spec: Path, expected_package: bytes
) -> None:
    assert compile_in_process(str(spec), spec.parent, PLAIN_ENVIRONMENT, flag, "-B", optimize=level) == expected_package


def test_working_directory_does_not_change_the_package(spec: Path, expected_package: bytes) -> None:
    """Named absolutely from elsewhere, and relatively from above, beside and below."""
    assert compile_in_process(str(spec), Path("/"), PLAIN_ENVIRONMENT) == expected_package
    assert compile_in_process("specs/rich.yaml", spec.parent.parent, PLAIN_ENVIRONMENT) == expected_package
    assert compile_in_process("rich.yaml", spec.parent, PLAIN_ENVIRONMENT) == expected_package
    assert (
        compile_in_process("../../specs/rich.yaml", spec.parent.parent / "code/shop", PLAIN_ENVIRONMENT)
        == expected_package
    )


def test_location_of_the_project_does_not_change_the_package(
    spec: Path, expected_package: bytes, tmp_path: Path
) -> None:
    copied = tmp_path / "ein anderer Ort/ü"
    shutil.copytree(spec.parent.parent, copied)
    assert compile_in_process(str(copied / "specs/rich.yaml"), tmp_path, PLAIN_ENVIRONMENT) == expected_package


def test_symlink_to_the_project_does_not_change_the_package(
    spec: Path, expected_package: bytes, tmp_path: Path
) -> None:
    """The project may be reached by a link; only links inside it are refused."""
    (tmp_path / "link").symlink_to(spec.parent.parent)
    assert compile_in_process(str(tmp_path / "link/specs/rich.yaml"), tmp_path, PLAIN_ENVIRONMENT) == expected_package


def test_planted_path_in_the_spec_changes_the_package(spec: Path, expected_package: bytes, tmp_path: Path) -> None:
    """A fingerprint that took in the place of the project would be seen."""
    copied = tmp_path / "copy"
    shutil.copytree(spec.parent.parent, copied)
    path = copied / "specs/rich.yaml"
    path.write_text(path.read_text().replace("Be kind", f"Be kind at {copied}"), encoding="utf-8")
    assert compile_in_process(str(path), tmp_path, PLAIN_ENVIRONMENT) != expected_package
