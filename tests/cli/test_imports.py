"""Python functions that cannot be imported: no run begins, and `--imports` finds them without a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .command import CommandResult, agentrun
from .shop_project import Project

ERROR = "desk (desk.py) cannot be imported: ModuleNotFoundError: No module named 'nowhere' (desk.py:1)"
NOTICE = "--imports runs the project's code: it imports Python tools and hooks, with few environment variables"
IMPORTED = "with open('imported.txt', 'a') as file: file.write(__name__ + '\\n')\n"
HOOKS = 'hooks: [{id: careful, at: before_tool, call: "watchers:watch"}]\n'


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """A project whose modules leave a trace when they are imported."""
    shop = Project(tmp_path)
    put_first(shop, "desk.py", IMPORTED)
    (tmp_path / "watchers.py").write_text(IMPORTED + "def watch(question): ...\n", encoding="utf-8")
    with shop.spec.open("a", encoding="utf-8") as file:
        file.write(HOOKS)
    return shop


def put_first(shop: Project, name: str, text: str) -> None:
    path = shop.root / name
    path.write_text(text + path.read_text(encoding="utf-8"), encoding="utf-8")


def imported_modules(shop: Project) -> list[str]:
    path = shop.root / "imported.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def run(shop: Project, *args: str) -> tuple[CommandResult, int]:
    """A run, and how many requests were sent."""
    with shop.provider() as (server, environment):
        done = shop.run(*args, **environment)
        return done, len(server.requests)


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "live", "--journal", "journal.jsonl"),
        ("--mode", "live", "--new-session", "mine"),
        ("--mode", "record", "--yes", "--journal", "journal.jsonl"),
    ],
    ids=["live", "session", "record"],
)
def test_dead_tool_refuses_the_run_before_it_begins(shop: Project, args: tuple[str, ...]) -> None:
    put_first(shop, "desk.py", "import nowhere\n")
    done, requests = run(shop, *args)
    assert (done.code, done.out, requests) == (2, "", 0)
    assert f"host.missing: {ERROR} (needed by tool look, tool refund)" in done.err
    assert "agentrun validate --imports" in done.err
    left = [path for path in shop.root.rglob("*") if path.is_file()]
    assert not [path for path in left if path.suffix in (".jsonl", ".journal") or "cassettes" in path.parts], left
    assert not (shop.root / "shop.cases.yaml").exists()
    assert "turn 1" not in done.err


def test_dead_hook_refuses_the_run_too(shop: Project) -> None:
    put_first(shop, "watchers.py", "raise SystemExit(0)\n")
    done, requests = run(shop, "--mode", "live", "--json")
    assert (done.code, requests) == (2, 0)
    error = done.lines()[-1]["error"]
    assert (error["code"], error["exit"]) == ("host.missing", 2)
    assert {key: error["fields"][key] for key in ("module", "file", "error")} == {
        "module": "watchers",
        "file": "watchers.py",
        "error": "SystemExit: 0",
    }
    assert "(needed by hook careful)" in error["message"]


def test_tools_of_sub_agents_are_imported(shop: Project) -> None:
    (shop.root / "clerk.yaml").write_text(
        'agentrun: "1"\nname: clerk\nmodel: {provider: openai, name: gpt-4.1-mini}\ninstructions: Be brief.\n'
        'tools: {file: {kind: python, call: "desk:refund"}}\npolicy: {default: deny, rules: [{id: a, ask: file}]}\n'
        "budgets: {tokens: 1k}\n",
        encoding="utf-8",
    )
    shop.edit(
        "shop.yaml", 'look: {kind: python, call: "desk:look", effect: read}', "look: {kind: agent, spec: clerk.yaml}"
    )
    shop.edit("shop.yaml", '  refund: {kind: python, call: "desk:refund"}\n', "")
    shop.edit("shop.yaml", "    - {id: money, ask: refund, reason: money}\n", "")
    put_first(shop, "desk.py", "import nowhere\n")
    done, requests = run(shop, "--mode", "live")
    assert (done.code, requests) == (2, 0)
    assert f"{ERROR} (needed by tool file)" in done.err
    found = agentrun("validate", "shop.yaml", "--imports", cwd=shop.root)
    assert (found.code, "clerk.yaml:5:" in found.err) == (2, True), found.err


def test_functions_are_imported_once_before_the_first_request(shop: Project) -> None:
    done, _ = run(shop, "--mode", "live", "--approve", "all")
    assert (done.code, imported_modules(shop)) == (0, ["desk", "watchers"])


def test_nothing_is_imported_for_a_run_that_is_not_allowed(shop: Project) -> None:
    done, _ = run(shop, "--mode", "record")
    assert (done.code, imported_modules(shop)) == (2, []), "nobody confirmed the recording"
    shop.edit("shop.yaml", "    - {id: reads,", "    - {id: closed, deny: '*', on: run_start}\n    - {id: reads,")
    done, requests = run(shop, "--mode", "live")
    assert (done.code, requests, imported_modules(shop)) == (4, 0, []), done.err


def test_replay_imports_nothing_and_live_tools_import_everything(shop: Project) -> None:
    shop.record()
    (shop.root / "imported.txt").unlink()
    assert (shop.run().code, imported_modules(shop)) == (0, [])
    with shop.provider() as (_, environment):
        shop.run("--live-model", **environment)
        assert imported_modules(shop) == []
        shop.run("--live-tools", "--approve", "all", **environment)
    assert imported_modules(shop) == ["desk", "watchers"]
    put_first(shop, "desk.py", "import nowhere\n")
    assert shop.run().code == 0, "a replay does not need the tools"
    done = shop.run("--live-tools", "--approve", "all")
    assert (done.code, "host.missing" in done.err) == (2, True)


def test_suite_that_records_names_the_dead_tool(shop: Project) -> None:
    put_first(shop, "desk.py", "import nowhere\n")
    (shop.root / "shop.cases.yaml").write_text('agentrun: "1"\ncases: [{name: default}]\n', encoding="utf-8")
    with shop.provider() as (server, environment):
        key, url = environment["OPENAI_API_KEY"], environment["OPENAI_BASE_URL"]
        args = ("test", "--record", "all", "--yes")
        done = agentrun(*args, cwd=shop.root, OPENAI_API_KEY=key, OPENAI_BASE_URL=url)
        assert (done.code, len(server.requests)) == (3, 0), "a case that was not recorded is a miss"
    assert ERROR in done.out + done.err
    assert not shop.cassette.exists()


# --- without a run ------------------------------------------------------------------------------------------------


def test_validate_and_doctor_import_nothing_without_the_flag(shop: Project) -> None:
    put_first(shop, "desk.py", "import nowhere\n")
    for command in (("validate", "."), ("doctor",)):
        done = agentrun(*command, cwd=shop.root)
        assert (done.code, NOTICE in done.err) == (0, False), done.err
    assert imported_modules(shop) == []


def test_validate_imports_says_first_that_it_runs_code(shop: Project) -> None:
    done = agentrun("validate", ".", "--imports", cwd=shop.root)
    assert done.code == 0, done.err
    assert done.err.splitlines() == [NOTICE, "3 of 3 functions imported", "1 file checked: no problems"]
    assert imported_modules(shop) == ["desk", "watchers"]
    assert not (shop.root / "__pycache__").exists()


def test_validate_imports_finds_dead_functions_at_their_line(shop: Project) -> None:
    put_first(shop, "desk.py", "import nowhere\n")
    done = agentrun("validate", "shop.yaml", "--imports", cwd=shop.root)
    assert done.code == 2
    assert done.err.splitlines()[0] == NOTICE
    assert f"shop.yaml:8:30  host.missing  {ERROR}" in done.err
    assert f"shop.yaml:9:32  host.missing  {ERROR}" in done.err
    assert "1 of 3 functions imported" in done.err.splitlines()
    assert "1 file checked: 2 errors, 0 warnings" in done.err
    rows = [
        json.loads(line) for line in agentrun("validate", ".", "--imports", "--json", cwd=shop.root).out.splitlines()
    ]
    assert [(row["line"], row["code"]) for row in rows] == [(8, "host.missing"), (9, "host.missing")]


def test_validate_imports_checks_every_profile(shop: Project) -> None:
    (shop.root / "other.py").write_text("raise OSError('no disk')\ndef look(order: str): ...\n", encoding="utf-8")
    with shop.spec.open("a", encoding="utf-8") as file:
        file.write('profiles: {ci: {tools: {look: {call: "other:look"}}}}\n')
    done = agentrun("validate", "shop.yaml", "--imports", cwd=shop.root)
    assert (done.code, "other (other.py) cannot be imported: OSError: no disk (other.py:1)" in done.err) == (2, True)


def test_check_gets_no_secrets_of_the_environment(shop: Project) -> None:
    put_first(shop, "desk.py", "import os\nopen('seen.txt', 'w').write(' '.join(os.environ))\n")
    done = agentrun("validate", ".", "--imports", cwd=shop.root, OPENAI_API_KEY="sk-x", SHOP_TOKEN="x")
    assert done.code == 0, done.err
    seen = (shop.root / "seen.txt").read_text(encoding="utf-8").split()
    assert "PATH" in seen
    assert not {"OPENAI_API_KEY", "SHOP_TOKEN"} & set(seen)


def test_spec_with_errors_is_not_imported(shop: Project) -> None:
    shop.edit("shop.yaml", "default: deny", "default: maybe")
    done = agentrun("validate", ".", "--imports", cwd=shop.root)
    assert (done.code, imported_modules(shop)) == (2, [])
    done = agentrun("doctor", "--imports", cwd=shop.root)
    assert "note  imports: shop.yaml has errors, so its functions were not imported" in done.out
    assert "agentrun validate shop.yaml" in done.out


def test_doctor_imports_the_functions_of_all_specs(shop: Project) -> None:
    done = agentrun("doctor", "--imports", cwd=shop.root)
    assert (done.code, done.err.splitlines()[0]) == (0, NOTICE)
    assert "ok    imports: 3 of 3 functions imported" in done.out
    put_first(shop, "desk.py", "import nowhere\n")
    done = agentrun("doctor", "--imports", cwd=shop.root)
    assert done.code == 2
    assert f"WRONG imports: shop.yaml:8:30: {ERROR}" in done.out
