"""Every command through its real entry point, with its output and exit code."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT, SMALL, agentrun


def test_help_names_every_command_and_shows_examples() -> None:
    done = agentrun("--help")
    assert done.code == 0
    for name in (
        "run",
        "init",
        "validate",
        "render",
        "compile",
        "lock",
        "diff",
        "show",
        "verify",
        "audit",
        "schema",
        "doctor",
        "provider",
        "test",
        "cassette",
        "completion",
    ):
        assert f"\n  {name} " in done.out
        own = agentrun(name, "--help")
        assert own.code == 0
        assert "Examples:" in own.out


def test_command_without_arguments_prints_the_help() -> None:
    bare = agentrun()
    assert (bare.code, bare.out, bare.err) == (0, agentrun("--help").out, "")


def test_version_is_that_of_the_distribution() -> None:
    assert agentrun("--version").out.startswith("agentrun 0.")


def test_unknown_command_suggests_a_similar_one() -> None:
    done = agentrun("valdate", "specs")
    assert done.code == 2
    assert 'did you mean "validate"?' in done.err


def test_missing_spec_is_refused() -> None:
    done = agentrun("specs/nothing.yaml")
    assert done.code == 2
    assert "does not exist" in done.err


def test_validate_finds_no_problems_in_the_shipped_specs() -> None:
    done = agentrun("validate", "--strict", "specs")
    assert (done.code, done.out) == (0, "")
    assert "no problems" in done.err


def test_validate_reports_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.replace("input", "inptu"))
    (tmp_path / "b.yaml").write_text(SMALL.replace("turns: 2", "turns: 0"))
    (tmp_path / "notes.yaml").write_text("not: ours\n")
    done = agentrun("validate", ".", cwd=tmp_path)
    assert done.code == 2
    assert "a.yaml:5:1  spec.unknown_key" in done.err
    assert 'did you mean "input"?' in done.err
    assert "b.yaml:6:18  spec.out_of_range" in done.err
    assert "2 files checked: 2 errors, 0 warnings" in done.err


def test_validate_json_has_one_object_per_problem(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.replace("input", "inptu"))
    done = agentrun("validate", "--json", "a.yaml", cwd=tmp_path)
    assert done.code == 2
    (problem,) = done.lines()
    assert (problem["file"], problem["line"], problem["column"]) == ("a.yaml", 5, 1)
    assert {"file", "line", "column", "code", "message", "hint"} <= problem.keys()
    assert done.err == ""


def test_validate_fails_for_a_folder_without_documents(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("not: ours\n")
    done = agentrun("validate", ".", cwd=tmp_path)
    assert (done.code, "no agentrun documents found" in done.err) == (2, True)
    (tmp_path / "json.yaml").write_text('{"agentrun": "1"}')
    assert "json.yaml:1:1" in agentrun("validate", ".", cwd=tmp_path).err


def test_validate_without_a_path_checks_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    assert "1 file checked: no problems" in agentrun("validate", cwd=tmp_path).err


def test_virtual_environment_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    for name in ("own.yaml", "venv/other.yaml"):
        (tmp_path / name).write_text((ROOT / "specs/triage.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert "1 file checked" in agentrun("validate", ".", cwd=tmp_path).err


def test_a_warning_fails_only_with_strict(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL.replace(", tokens: 2k", ""))
    assert agentrun("validate", "a.yaml", cwd=tmp_path).code == 0
    assert agentrun("validate", "--strict", "a.yaml", cwd=tmp_path).code == 2


def test_compile_prints_the_fingerprint_and_writes_a_package_that_validates(tmp_path: Path) -> None:
    done = agentrun("compile", "specs/support.yaml", "-o", tmp_path / "p.json")
    assert done.code == 0
    fingerprint = done.out.strip()
    assert len(fingerprint) == len("sha256:") + 64
    written = json.loads((tmp_path / "p.json").read_text())
    assert written["fingerprint"] == fingerprint
    sections = agentrun("compile", "specs/support.yaml", "--json").lines()[0]
    assert sections == {"fingerprint": fingerprint, "sections": written["sections"]}
    assert agentrun("validate", tmp_path / "p.json").code == 0


def test_a_tampered_package_is_refused(tmp_path: Path) -> None:
    agentrun("compile", "specs/triage.yaml", "-o", tmp_path / "p.json")
    data = (tmp_path / "p.json").read_text()
    (tmp_path / "p.json").write_text(data.replace('"turns":3', '"turns":9'))
    done = agentrun("validate", "--json", tmp_path / "p.json")
    assert (done.code, done.lines()[0]["code"]) == (2, "package.fingerprint_mismatch")
    assert agentrun("diff", "specs/triage.yaml", tmp_path / "p.json").code == 2


def test_package_given_as_spec_is_refused_with_a_hint(tmp_path: Path) -> None:
    agentrun("compile", "specs/triage.yaml", "-o", tmp_path / "p.package.json")
    done = agentrun("p.package.json", cwd=tmp_path)
    assert (done.code, done.err.count("spec.")) == (2, 1), done.err
    assert "this file is a compiled package, not a spec" in done.err
    assert "run the spec it was compiled from, or use agentrun.run(" in done.err


def test_compile_of_a_broken_spec_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("agentrun: '1'\n")
    done = agentrun("compile", "a.yaml", "-o", "p.json", cwd=tmp_path)
    assert done.code == 2
    assert "spec.missing_key" in done.err
    assert not (tmp_path / "p.json").exists()


def test_package_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    done = agentrun("compile", "specs/triage.yaml", "-o", tmp_path / "nowhere" / "p.json")
    assert done.code == 7
    assert "storage.failed" in done.err


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        agentrun("compile", "specs/triage.yaml", "-o", tmp_path / "p.json")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "p.json").stat().st_mode) == 0o640


def test_render_prints_the_prompts_with_params() -> None:
    done = agentrun("render", "specs/support.yaml", "--param", "order_id=7001", "--param", "region=us")
    assert done.code == 0
    assert "order 7001" in done.out
    assert "US dollars" in done.out
    assert "euro" not in done.out
    both = agentrun("render", "specs/support.yaml", "--json").lines()[0]
    assert both["input"].startswith("Where is my order 1042?")


@pytest.mark.parametrize(
    ("param", "said"),
    [("ordr_id=1", 'did you mean "order_id"?'), ("order_id=x", "order_id"), ("region=fr", "region")],
)
def test_render_refuses_wrong_params(param: str, said: str) -> None:
    done = agentrun("render", "specs/support.yaml", "--param", param)
    assert done.code == 2
    assert "input.rejected" in done.err
    assert said in done.err


def test_diff_of_specs_names_the_changed_values(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "b.yaml").write_text("# a comment\n" + SMALL)
    same = agentrun("diff", "a.yaml", "b.yaml", cwd=tmp_path)
    assert (same.code, same.out) == (0, "")
    (tmp_path / "b.yaml").write_text(SMALL.replace("turns: 2", "turns: 3"))
    changed = agentrun("diff", "a.yaml", "b.yaml", cwd=tmp_path)
    assert (changed.code, changed.out) == (1, "budgets.turns: 2 → 3\n")
    (row,) = agentrun("diff", "--json", "a.yaml", "b.yaml", cwd=tmp_path).lines()
    assert row == {"section": "budgets", "path": "turns", "change": "changed", "before": 2, "after": 3}


def test_schema_lists_prints_and_writes(tmp_path: Path) -> None:
    names = agentrun("schema").out.split()
    assert names == ["agent", "tools", "policy", "budgets", "cases", "provider", "package", "journal"]
    assert agentrun("schema", "agent").out == (ROOT / "schemas" / "agent.schema.json").read_text()
    assert agentrun("schema", "--write", tmp_path / "s").code == 0
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == sorted(f"{n}.schema.json" for n in names)
    assert agentrun("schema", "agnet").code == 2


def test_lock_writes_and_checks(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text(SMALL)
    assert agentrun("lock", "--check", "a.yaml", cwd=tmp_path).code == 2
    assert agentrun("lock", "a.yaml", cwd=tmp_path).code == 0
    assert agentrun("lock", "--check", "a.yaml", cwd=tmp_path).code == 0
    spec.write_text(SMALL.replace("gpt-4.1-mini", "gpt-4.1"))
    assert agentrun("lock", "--check", "a.yaml", cwd=tmp_path).code == 2


def test_lock_pins_the_routes_of_profiles_too(tmp_path: Path) -> None:
    profiles = "profiles: {big: {model: {name: gpt-4.1}}}\n"
    (tmp_path / "a.yaml").write_text(SMALL.replace("turns: 2", "turns: 2, cost: 1") + profiles)
    assert agentrun("validate", "a.yaml", cwd=tmp_path).code == 2
    assert agentrun("lock", "a.yaml", cwd=tmp_path).code == 0
    assert set(json.loads((tmp_path / "a.lock").read_text())["routes"]) == {"openai/gpt-4.1-mini", "openai/gpt-4.1"}
    assert agentrun("validate", "a.yaml", cwd=tmp_path).code == 0


@pytest.mark.parametrize("spec", ["support", "triage", "local", "ops"])
def test_the_shipped_locks_are_up_to_date(spec: str) -> None:
    assert agentrun("lock", "--check", f"specs/{spec}.yaml").code == 0


def test_doctor_shows_no_key(tmp_path: Path) -> None:
    canary = "canary-4711-not-a-real-key"
    done = agentrun("doctor", cwd=tmp_path, OPENAI_API_KEY=canary)
    assert done.code == 0
    assert "OPENAI_API_KEY: set" in done.out
    assert "ANTHROPIC_API_KEY: not set" in done.out
    assert canary not in done.out + done.err
    rows = agentrun("doctor", "--json", cwd=tmp_path).lines()
    assert {row["state"] for row in rows} <= {"ok", "note"}


def test_doctor_finds_a_broken_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["gone"]\n')
    done = agentrun("doctor", cwd=tmp_path)
    assert done.code == 2
    assert "WRONG" in done.out


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_completion_prints_a_script(shell: str) -> None:
    done = agentrun("completion", shell)
    assert done.code == 0
    assert "_AGENTRUN_COMPLETE" in done.out


@pytest.mark.parametrize(
    ("words", "completed"),
    [("val", "validate"), ("test specs --tag pe", "people"), ("specs/support.yaml --ca", "--case")],
)
def test_completion_completes_in_bash(words: str, completed: str) -> None:
    """With the script that it prints. `compopt` works only while bash completes."""
    command = shlex.quote(str(Path(sys.executable).with_name("agentrun")))
    lines = (
        "compopt() { :; }",
        f'eval "$({command} completion bash)"',
        f"COMP_WORDS=(agentrun {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))",
        f"_agentrun_completion {command}",
        'echo "${COMPREPLY[@]}"',
    )
    done = subprocess.run(["bash", "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["specs/support.yaml", "--case", "def"], ["default"]),
        (["run", "specs/support.yaml", "--case", "appr"], ["approval"]),
        (["specs/support.yaml", "--profile", ""], ["ci"]),
        (["compile", "specs/support.yaml", "--profile", "c"], ["ci"]),
        (["specs/support.yaml", "--param", "ord"], ["order_id="]),
        (["test", "specs", "--tag", "a"], []),
        (["specs/nothing.yaml", "--case", ""], []),
        (["README.md", "--profile", ""], []),
    ],
)
def test_completion_completes_the_values_of_options(words: list[str], completed: list[str]) -> None:
    place = str(len(words))
    command = " ".join(["agentrun", *(word or "''" for word in words)])
    done = agentrun(_AGENTRUN_COMPLETE="bash_complete", COMP_WORDS=command, COMP_CWORD=place)
    assert (done.code, done.err) == (0, "")
    assert [line.removeprefix("plain,") for line in done.out.split()] == completed


def test_completion_completes_tags_of_cases(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    (tmp_path / "a.cases.yaml").write_text('agentrun: "1"\ncases: [{name: one, tags: [slow, smoke]}]\n')
    for command in ("agentrun test --tag s", "agentrun test . --tag s"):
        place = str(len(command.split()) - 1)
        done = agentrun(cwd=tmp_path, _AGENTRUN_COMPLETE="bash_complete", COMP_WORDS=command, COMP_CWORD=place)
        assert done.out.split() == ["plain,slow", "plain,smoke"]


@pytest.mark.parametrize(
    "words",
    [
        ["specs/suport.yaml"],
        ["spec/support.yaml", "--mode", "replay"],
        ["validate", "specs/suport.yaml"],
        ["compile", "./specs/support.yml"],
        ["test", "specs/suport.yaml"],
        ["support.yaml"],
        ["support"],
        ["specs/support"],
        ["render", "support.yaml"],
        ["test", "support.yaml"],
    ],
)
def test_misspelt_path_gets_a_suggestion(words: list[str]) -> None:
    done = agentrun(*words)
    assert (done.code, "did you mean" in done.err) == (2, True), done.err
    assert "specs/support.yaml" in done.err


@pytest.mark.parametrize("folder", ["specs", "specs/", "."])
def test_folder_given_as_a_spec_is_answered_with_the_command_for_its_cases(folder: str) -> None:
    done = agentrun(folder)
    assert (done.code, f"agentrun test {folder}\n" in done.err) == (2, True), done.err


def test_path_that_only_has_the_same_ending_is_not_suggested() -> None:
    done = agentrun("specs/xyz.yaml")
    assert (done.code, "did you mean" in done.err) == (2, False), done.err


@pytest.mark.parametrize("command", [[], ["render"], ["compile"], ["lock"]])
def test_file_of_cases_given_as_a_spec_is_refused_with_its_spec(command: list[str]) -> None:
    done = agentrun(*command, "specs/triage.cases.yaml")
    assert done.code == 2
    assert "is a file of cases of specs/triage.yaml; to run them: agentrun test specs/triage.cases.yaml" in done.err
    assert "spec." not in done.err.replace("specs/", "")


def test_message_without_quotes_is_refused_with_the_quoted_one() -> None:
    done = agentrun("specs/triage.yaml", "Where", "is", "it?")
    assert (done.code, "put the message in quotes: 'Where is it?'" in done.err) == (2, True), done.err


def test_init_makes_a_project_that_validates_compiles_and_replays(tmp_path: Path) -> None:
    assert agentrun("init", "p", cwd=tmp_path).code == 0
    project = tmp_path / "p"
    assert agentrun("validate", "--strict", ".", cwd=project).code == 0
    assert agentrun("compile", "specs/hello.yaml", cwd=project).code == 0
    run = agentrun("specs/hello.yaml", cwd=project)
    assert run.code == 0
    assert run.out.strip()
    assert "replay:" in run.err
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    audited = agentrun("cassette", "audit", cwd=tmp_path / "p")
    assert (audited.code, audited.out) == (0, ""), audited.out
    assert agentrun("cassette", cwd=tmp_path / "p").out.split()[-1] == "fresh"
    again = agentrun("init", "p", cwd=tmp_path)
    assert (again.code, ": new" in again.err, ": add" in again.err) == (0, False, False)
    assert before == {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}


def test_set_and_profile_change_the_fingerprint() -> None:
    plain = agentrun("compile", "specs/support.yaml").out
    assert agentrun("compile", "specs/support.yaml", "--profile", "ci").out != plain
    assert agentrun("compile", "specs/support.yaml", "--set", "budgets.turns=5").out != plain
    assert agentrun("compile", "specs/support.yaml", "--set", "budgets.turns=12").out == plain
    wrong = agentrun("compile", "specs/support.yaml", "--profile", "cii")
    assert wrong.code == 2
    assert 'did you mean "ci"?' in wrong.err
    assert agentrun("compile", "specs/support.yaml", "--set", "budgets.turns").code == 2


def test_closed_stdout_is_no_error() -> None:
    from subprocess import PIPE, Popen

    from .command import SCRIPT

    with Popen([SCRIPT, "schema", "agent"], cwd=ROOT, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read().decode()
    assert process.returncode == 0
    assert err == ""


def test_internal_error_exits_70_and_hides_its_message(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import agentrun.compiler.validate as v\n"
        "def broken(path):\n    raise RuntimeError('canary-4711')\n"
        "v.validate_document = broken\n"
    )
    (tmp_path / "a.yaml").write_text(SMALL)
    done = agentrun("validate", "a.yaml", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.code == 70
    assert "internal: RuntimeError" in done.err
    assert "canary" not in done.err
