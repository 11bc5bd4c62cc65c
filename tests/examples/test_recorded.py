"""The cassettes that are shipped: recorded anew they mean the same, and without a network they replay the same."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.cassette.file import load
from agentrun.cassette.redaction import Redaction
from agentrun.core.facts import RunStarted
from agentrun.journal.canonical import canonical
from agentrun.journal.file import read_file
from agentrun.journal.places import child_files
from agentrun.testing.provider import ScriptedProvider

from ..cli.agent import ROOT, SCRIPT

_found = importlib.util.spec_from_file_location("record_examples", ROOT / "specs" / "record.py")
assert _found is not None
assert _found.loader is not None
RECORD: Any = importlib.util.module_from_spec(_found)
_found.loader.exec_module(RECORD)

SCRIPTED = [(spec, case, script) for spec, cases in RECORD.SCRIPTS.items() for case, script in cases.items()]
SHIPPED = sorted((path.parent.name, path.stem) for path in (ROOT / "cassettes").glob("*/*.yaml"))
OFFLINE = ["unshare", "-rn"] if shutil.which("unshare") else []
EXITS = {("triage", "denial"): 4, ("ops", "other"): 4}
PATH = f"{Path(SCRIPT).parent}:{os.environ['PATH']}"


def run(folder: Path, spec: str, case: str, *args: str, offline: bool = False, **environment: Any) -> Path:
    """Run a case and give the path of its journal."""
    journal = folder / f"{spec}.{case}.{'replay' if offline else 'live'}.jsonl"
    command = [SCRIPT, f"specs/{spec}.yaml", "--case", case, "--journal", str(journal), *args]
    done = subprocess.run(
        [*(OFFLINE if offline else []), *command],
        cwd=folder,
        env={"PATH": PATH, "SHOP_LEDGER": str(folder / "ledger.jsonl"), **environment},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == EXITS.get((spec, case), 0), done.stderr.decode()
    return journal


def told(spec: str, journal: Path) -> str:
    rules = agentrun.compile(ROOT / "specs" / f"{spec}.yaml").agent.replay.redact
    records = [tuple(read_file(path)) for path in child_files(journal)]
    children = {each[0].fact.run: each for each in records if isinstance(each[0].fact, RunStarted)}
    return canonical(read_file(journal), children, Redaction(rules).text)


def provider(agent: str, script: str) -> Path:
    return ROOT / "specs" / "scripts" / f"{agent}.{script}.provider.yaml"


def project(folder: Path) -> Path:
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_case_is_shipped() -> None:
    assert {(spec, case) for spec, case, _ in SCRIPTED} | {("local", "default"), ("local", "question")} == set(SHIPPED)


@pytest.mark.parametrize(("spec", "case", "script"), SCRIPTED)
def test_recorded_anew_it_means_the_same(tmp_path: Path, spec: str, case: str, script: str) -> None:
    folder = project(tmp_path)
    shipped = run(folder, spec, case, offline=True)
    below = RECORD.CHILDREN.get(spec, spec)
    with ScriptedProvider(provider(spec, script)) as server, ScriptedProvider(provider(below, script)) as child:
        keys: dict[str, Any] = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "not-a-key")
        addresses: dict[str, Any] = {"OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": child.url}
        live = run(folder, spec, case, "--record", "all", **keys, **addresses)
    assert told(spec, live) == told(spec, shipped)
    again = run(folder, spec, case, offline=True)
    assert told(spec, again) == told(spec, shipped)


@pytest.mark.parametrize(("spec", "case"), SHIPPED)
def test_without_a_network(tmp_path: Path, spec: str, case: str) -> None:
    run(project(tmp_path), spec, case, offline=True)
    traces = ("ledger.jsonl", ".agentrun/restarted", ".agentrun/notebook.jsonl")
    assert not [name for name in traces if (tmp_path / name).exists()], "no tool ran"


@pytest.mark.parametrize(("spec", "case"), SHIPPED)
def test_the_metadata_says_where_it_comes_from(spec: str, case: str) -> None:
    about = load(ROOT / "cassettes" / spec / f"{case}.yaml").metadata
    assert (about["spec"], about["case"]) == (f"specs/{spec}.yaml", case)
    for where in about["where"]:
        assert ("a scripted provider: no model was asked" in where) == (spec != "local")
