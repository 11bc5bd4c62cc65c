"""The shipped cassettes: recording them again gives the same requests, and their metadata names the origin."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.cassette.match import match_key
from agentrun.testing.provider import ScriptedProvider

from ..cli.command import ROOT, SCRIPT, agentrun

_module_spec = importlib.util.spec_from_file_location("record_examples", ROOT / "specs" / "record.py")
assert _module_spec is not None
assert _module_spec.loader is not None
RECORD: Any = importlib.util.module_from_spec(_module_spec)
_module_spec.loader.exec_module(RECORD)

SCRIPTED_CASES = [(spec, case, script) for spec, cases in RECORD.SCRIPTS.items() for case, script in cases.items()]
SHIPPED = sorted((path.parent.name, path.stem) for path in (ROOT / "cassettes").glob("*/*.yaml"))
PATH = f"{Path(SCRIPT).parent}:{os.environ['PATH']}"


def provider(agent: str, script: str) -> Path:
    return ROOT / "specs" / "scripts" / f"{agent}.{script}.provider.yaml"


def test_every_scripted_case_has_a_cassette() -> None:
    assert {(spec, case) for spec, case, _ in SCRIPTED_CASES} | {("local", "default"), ("local", "question")} == set(
        SHIPPED
    )


@pytest.mark.parametrize(("spec", "case", "script"), SCRIPTED_CASES)
def test_new_recording_has_the_same_requests_and_passes(tmp_path: Path, spec: str, case: str, script: str) -> None:
    """The new recording is compared with the accepted journal, and the assertions of the case are checked."""
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    cassette = tmp_path / "cassettes" / spec / f"{case}.yaml"
    before = load_cassette(cassette)
    cassette.unlink()
    below = RECORD.CHILDREN.get(spec, spec)
    with ScriptedProvider(provider(spec, script)) as server, ScriptedProvider(provider(below, script)) as child:
        keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "not-a-key")
        addresses = {"OPENAI_BASE_URL": f"{server.url}/v1", "ANTHROPIC_BASE_URL": child.url}
        command = ("test", f"specs/{spec}.cases.yaml::{case}", "--record", "all", "--yes", "--require-tier", "exact")
        ledger = str(tmp_path / "ledger.jsonl")
        done = agentrun(*command, cwd=tmp_path, stdin=b"", PATH=PATH, SHOP_LEDGER=ledger, **keys, **addresses)
    assert done.code == 0, done.out + done.err
    assert "1 passed" in done.out
    asked, asked_before = (
        [match_key(each.call, each.path) for each in one.interactions] for one in (load_cassette(cassette), before)
    )
    assert asked == asked_before, "the same was asked"


@pytest.mark.parametrize(("spec", "case"), SHIPPED)
def test_metadata_names_spec_case_and_provider(spec: str, case: str) -> None:
    about = load_cassette(ROOT / "cassettes" / spec / f"{case}.yaml").metadata
    assert (about["spec"], about["case"]) == (f"specs/{spec}.yaml", case)
    for where in about["where"]:
        assert ("a scripted provider: no model was asked" in where) == (spec != "local")
