"""Live runs read the `.env` of their project, name the variables that it sets, and never show a value."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .command import ROOT, agentrun
from .shop_project import KEY, STORY, Project

OPEN_WATCHER = """
import sys
def watch(event, args):
    if event == "open" and str(args[0]).endswith(".env"):
        raise SystemExit(99)
sys.addaudithook(watch)
from agentrun.cli import main
sys.exit(main())
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    return project


def test_live_run_uses_the_key_and_its_first_line_names_it(shop: Project) -> None:
    with shop.provider() as (server, environment):
        del environment["OPENAI_API_KEY"]
        done = shop.run("--mode", "live", "--approve", "all", **environment)
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert (done.code, done.out) == (0, "Done.\n")
    first = "live: --mode live (requests go to openai, tools run for real); OPENAI_API_KEY from .env"
    assert done.err.splitlines()[0] == first
    assert first in (ROOT / "docs" / "cassettes.md").read_text(encoding="utf-8").splitlines()
    assert KEY not in done.err


def test_json_of_a_live_run_names_the_variables(shop: Project) -> None:
    with shop.provider() as (_, environment):
        del environment["OPENAI_API_KEY"]
        start = shop.run("--mode", "live", "--approve", "all", "--json", **environment).lines()[0]["start"]
    assert start["why"].endswith("; OPENAI_API_KEY from .env")


def test_value_of_the_file_is_redacted_everywhere(shop: Project) -> None:
    """The model repeats the value, in an ordinary word that no search for credentials finds."""
    value = "blue-parrot-on-tuesday"
    (shop.root / ".env").write_text(f"OPENAI_API_KEY={value}\n")
    story = STORY.replace("text: Done.", f"text: The word is {value}.")
    with shop.provider(story) as (_, environment):
        del environment["OPENAI_API_KEY"]
        done = shop.run("--mode", "record", "--yes", "--approve", "all", "--journal", "journal.jsonl", **environment)
    assert done.code == 0, done.err
    shown = done.out + done.err + (shop.root / "journal.jsonl").read_text() + shop.cassette.read_text()
    assert value not in shown
    assert "The word is " in done.out


def test_value_of_the_file_that_a_tool_prints_is_redacted(shop: Project) -> None:
    """The tool writes to the descriptor, past all that looks at the results of tools."""
    value = "blue-parrot-on-tuesday"
    (shop.root / ".env").write_text(f"OPENAI_API_KEY={value}\n")
    written = f'"""Finds an order."""\n    import os; os.write(1, b"it is {value}\\n")\n'
    shop.edit("desk.py", '"""Finds an order."""\n', written)
    with shop.provider() as (_, environment):
        del environment["OPENAI_API_KEY"]
        done = shop.run("--mode", "live", "--approve", "all", **environment)
    assert (done.code, done.out) == (0, "Done.\n")
    assert "printed: it is " in done.err
    assert value not in done.err


def test_file_cannot_send_requests_elsewhere(shop: Project) -> None:
    with shop.provider() as (server, _), shop.provider() as (right, environment):
        (shop.root / ".env").write_text(f"OPENAI_BASE_URL={server.url}/v1\nAGENTRUN_MODE=live\n")
        assert shop.run("--mode", "live", "--approve", "all", **environment).code == 0
        assert (server.requests, len(right.requests)) == ([], 4)


def test_tracked_file_is_not_read_and_the_first_line_or_the_hint_says_so(shop: Project) -> None:
    subprocess.run(["git", "init", "-q"], cwd=shop.root, check=True)
    subprocess.run(["git", "add", "-f", ".env"], cwd=shop.root, check=True)
    with shop.provider() as (server, environment):
        with_key = shop.run("--mode", "live", "--approve", "none", **environment)
        asked = len(server.requests)
        del environment["OPENAI_API_KEY"]
        without_key = shop.run("--mode", "live", **environment)
        assert (with_key.code, without_key.code, len(server.requests)) == (0, 2, asked)
    sentence = ".env was not read because git tracks it: run git rm --cached .env"
    assert sentence in with_key.err.splitlines()[0]
    assert f"→ {sentence}" in without_key.err


def test_recording_of_a_suite_names_the_variables_once(shop: Project) -> None:
    (shop.root / "shop.cases.yaml").write_text(
        'agentrun: "1"\ncases:\n'
        "  - {name: a, approvals: {refund: approved}}\n  - {name: b, approvals: {refund: approved}}\n"
    )
    turns = STORY.partition("turns:\n")[2]
    with shop.provider(STORY + turns) as (_, environment):
        address = environment["OPENAI_BASE_URL"]
        done = agentrun("test", "--record", "all", "--yes", cwd=shop.root, OPENAI_BASE_URL=address)
    assert done.code == 0, done.err + done.out
    assert done.err.count("OPENAI_API_KEY from .env") == 1
    assert done.err.splitlines()[0] == "OPENAI_API_KEY from .env"
    assert KEY not in done.err + done.out


@pytest.mark.parametrize(
    "command",
    [["shop.yaml"], ["test"], ["validate", "shop.yaml"], ["compile", "shop.yaml"]],
    ids=["replay", "test", "validate", "compile"],
)
def test_commands_without_a_network_do_not_read_the_file(shop: Project, command: list[str]) -> None:
    (shop.root / ".env").unlink()
    shop.recorded()
    (shop.root / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    assert watched_exit_code(shop, command) == 0
    assert watched_exit_code(shop, ["shop.yaml", "--mode", "live"]) == 99


def watched_exit_code(shop: Project, command: list[str]) -> int:
    """The exit code of a command, which is 99 if it opens a `.env`."""
    run = [sys.executable, "-c", OPEN_WATCHER, *command]
    return subprocess.run(run, cwd=shop.root, env={"PATH": ""}, capture_output=True, check=False).returncode


def test_doctor_shows_each_setting_and_where_it_comes_from(shop: Project) -> None:
    (shop.root / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL=https://{KEY}/\nAGENTRUN_TRUST_ENV=1\n")
    done = agentrun("doctor", "--json", cwd=shop.root, ANTHROPIC_API_KEY=KEY, HTTPS_PROXY=f"http://u:{KEY}@h")
    assert KEY not in done.out
    rows = {row["what"]: row for row in map(json.loads, done.out.splitlines())}
    sources = {
        "OPENAI_API_KEY": "set in .env",
        "ANTHROPIC_API_KEY": "set in the environment",
        "HTTPS_PROXY": "set in the environment",
        "NO_PROXY": "not set",
    }
    assert {name: rows[name]["text"] for name in sources} == sources
    assert (rows["AGENTRUN_TRUST_ENV"]["text"], rows["GEMINI_API_KEY"]["state"]) == ("default", "note")
    assert rows["OPENAI_BASE_URL"]["fix"] == ".env cannot set OPENAI_BASE_URL: export OPENAI_BASE_URL=…"


def test_doctor_reports_a_setting_that_cannot_be_used(tmp_path: Path) -> None:
    done = agentrun("doctor", cwd=tmp_path, AGENTRUN_TRUST_ENV="perhaps")
    assert done.code == 2
    assert "WRONG AGENTRUN_TRUST_ENV: its value cannot be used\n       → set it to true or false" in done.out
    assert "perhaps" not in done.out


@pytest.mark.parametrize(("size", "code"), [("1KiB", 7), ("1MiB", 0), ("much", 2)])
def test_limit_of_cassettes_can_be_set_in_the_environment(shop: Project, size: str, code: int) -> None:
    with shop.provider() as (_, environment):
        options = ["--mode", "record", "--yes", "--approve", "all"]
        done = shop.run(*options, AGENTRUN_CASSETTE_LIMIT=size, **environment)
    assert done.code == code, done.err
    if code == 2:
        assert "AGENTRUN_CASSETTE_LIMIT is not a valid size" in done.err


def test_line_that_is_wrong_is_named_without_its_text(shop: Project) -> None:
    (shop.root / ".env").write_text(f"# keys\n\nnot a line blue-parrot\nOPENAI_API_KEY={KEY}\n")
    with shop.provider() as (_, environment):
        del environment["OPENAI_API_KEY"]
        done = shop.run("--mode", "live", "--approve", "all", **environment)
        quiet = shop.run("--mode", "live", "--approve", "all", "--quiet", **environment)
    warning = "line 3 of .env is not NAME=value and was ignored"
    assert done.err.splitlines()[0].endswith(f"; OPENAI_API_KEY from .env; {warning}")
    assert (quiet.err, "parrot" in done.err) == ("", False)
    assert f"note  .env: {warning}\n" in agentrun("doctor", cwd=shop.root).out


def test_mode_of_the_command_line_takes_precedence_over_a_wrong_variable(shop: Project) -> None:
    with shop.provider() as (_, environment):
        environment["AGENTRUN_MODE"] = "bogus"
        assert shop.run("--mode", "live", "--approve", "all", **environment).code == 0
        done = shop.run("--approve", "all", **environment)
    assert done.code == 2
    assert "AGENTRUN_MODE" in done.err


def test_doctor_says_once_that_a_tracked_file_is_not_read(shop: Project) -> None:
    subprocess.run(["git", "init", "-q"], cwd=shop.root, check=True)
    subprocess.run(["git", "add", "-f", ".env"], cwd=shop.root, check=True)
    assert agentrun("doctor", cwd=shop.root).out.count("git tracks it") == 1


def test_doctor_reports_every_value_that_cannot_be_used(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"AGENTRUN_TRUST_ENV": "perhaps", "AGENTRUN_MODE": "zzz", "AGENTRUN_CASSETTE_LIMIT": "much"}
    done = agentrun("doctor", cwd=tmp_path, **wrong)
    assert done.code == 2
    lines = done.out.splitlines()
    for name in wrong:
        assert [line for line in lines if name in line] == [f"WRONG {name}: its value cannot be used"]
    assert "→ set it to auto, live, record or replay" in done.out


def test_doctor_shows_the_settings_of_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.agentrun]\ncassettes = "recorded"\ncassette_limit = "1MiB"\n')
    out = agentrun("doctor", cwd=tmp_path, AGENTRUN_CASSETTE_LIMIT="2MiB").out
    assert "ok    AGENTRUN_CASSETTES: set in pyproject.toml\n" in out
    assert "ok    AGENTRUN_CASSETTE_LIMIT: set in the environment\n" in out
    assert "ok    AGENTRUN_STORE: not set\n" in out


# --- what the project and the operator say about credentials -------------------------------------------------------


def test_first_line_names_what_the_operator_does_not_redact(shop: Project) -> None:
    given = {"SHOP_KEY": "Done or not", "AGENTRUN_NOT_SECRET": "SHOP_KEY,OPENAI_API_KEY,OTHER_KEY"}
    with shop.provider(STORY.replace("Done.", f"Done or not. {KEY}")) as (_, environment):
        done = shop.run("--mode", "live", "--approve", "all", **environment, **given)
    assert done.err.splitlines()[0].endswith("; not redacted because of AGENTRUN_NOT_SECRET: SHOP_KEY")
    assert done.out == "Done or not. [redacted:OPENAI_API_KEY]\n", "the key of a provider stays secret"


def test_first_line_does_not_name_the_key_of_a_provider_because_it_is_redacted(shop: Project) -> None:
    shop.edit("shop.yaml", "temperature: 0,", 'temperature: 0, api_key: "${ROUTE_KEY}",')
    given = {"ROUTE_KEY": "route to nowhere", "SHOP_KEY": "Done or not", "AGENTRUN_NOT_SECRET": "ROUTE_KEY,SHOP_KEY"}
    with shop.provider(STORY.replace("Done.", "Done or not. route to nowhere")) as (_, environment):
        done = shop.run("--mode", "live", "--approve", "all", **environment, **given)
    assert done.err.splitlines()[0].endswith("; not redacted because of AGENTRUN_NOT_SECRET: SHOP_KEY")
    assert done.out == "Done or not. [redacted:ROUTE_KEY]\n"


def test_file_of_the_project_cannot_make_a_credential_visible(shop: Project) -> None:
    """Only the operator can, in the environment. Then the first line also names a variable of the file."""
    (shop.root / ".env").write_text("SHOP_KEY=Done or not\nAGENTRUN_NOT_SECRET=SHOP_KEY,DB_PASS\n")
    with shop.provider(STORY.replace("Done.", "Done or not. tulips in spring")) as (_, environment):
        given = {**environment, "DB_PASS": "tulips in spring"}
        hidden = shop.run("--mode", "live", "--approve", "all", **given)
        shown = shop.run("--mode", "live", "--approve", "all", **given, AGENTRUN_NOT_SECRET="SHOP_KEY,DB_PASS")
    assert hidden.out == "[redacted:SHOP_KEY]. [redacted:DB_PASS]\n"
    assert "not redacted" not in hidden.err
    assert shown.out == "Done or not. tulips in spring\n"
    assert shown.err.splitlines()[0].endswith("; not redacted because of AGENTRUN_NOT_SECRET: DB_PASS, SHOP_KEY")


def test_project_adds_names_and_cannot_remove_any(shop: Project) -> None:
    (shop.root / "pyproject.toml").write_text('[tool.agentrun]\nsecrets = ["SHOP_LOGIN"]\n', encoding="utf-8")
    with shop.provider(STORY.replace("Done.", "I am ada and nobody.")) as (_, environment):
        done = shop.run("--mode", "live", "--approve", "all", **environment, SHOP_LOGIN="ada and nobody")
    assert done.out == "I am [redacted:SHOP_LOGIN].\n"
    for wrong in ('secrets = "SHOP_LOGIN"', 'secrets = ["SHOP LOGIN"]', "secrets = [1]", "not_secret = []"):
        (shop.root / "pyproject.toml").write_text(f"[tool.agentrun]\n{wrong}\n", encoding="utf-8")
        done = shop.run("--mode", "live", **environment)
        assert done.code == 2
        assert "pyproject.toml:2:1" in done.err


def test_credential_that_is_too_short_is_named_before_a_recording_and_by_doctor(shop: Project) -> None:
    given = {"DB_PASS": "7 chars", "SHOP_PASS": "8 chars."}
    with shop.provider() as (_, environment):
        done = shop.run("--mode", "record", "--yes", "--approve", "all", **environment, **given)
    assert done.err.count("too short to be redacted: DB_PASS\n") == 1
    doctor = agentrun("doctor", "--json", cwd=shop.root, stdin=b"", **given)
    short = [line["what"] for line in doctor.lines() if "too short to be redacted" in line["text"]]
    assert short == ["DB_PASS"]
    assert "7 chars" not in done.err + doctor.out
