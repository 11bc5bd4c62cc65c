"""`agentrun SPEC`: what goes to which stream, which recording is taken, and how it ends when there is none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .agent import ROOT, Done, agentrun

ANSWER = {"topic": "outage", "urgency": "high", "mood": "worried"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the triage agent with its recording."""
    (tmp_path / "pyproject.toml").write_text("[tool.agentrun]\n")
    for name in ("specs/triage.yaml", "specs/triage.cases.yaml", "specs/triage.lock", "specs/prompts/triage.md.j2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "cassettes" / "triage", tmp_path / "cassettes" / "triage")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_answer_on_stdout_and_the_story_on_stderr() -> None:
    done = agentrun("specs/triage.yaml")
    assert done.code == 0
    assert json.loads(done.out).items() >= ANSWER.items()
    first, *_, last = done.err.splitlines()
    assert first == "replay: cassettes/triage/default.yaml (case default; nothing is sent)"
    assert last.startswith("completed in 1 turn")
    assert agentrun("run", "specs/triage.yaml").out == done.out


def test_quiet_leaves_only_the_answer() -> None:
    done = agentrun("specs/triage.yaml", "--quiet")
    assert (done.err, bool(done.out)) == ("", True)


def test_options_may_come_first() -> None:
    assert agentrun("--mode", "replay", "--quiet", "specs/triage.yaml").code == 0
    assert agentrun("specs/triage.yaml", AGENTRUN_MODE="replay").code == 0
    assert agentrun("specs/triage.yaml", AGENTRUN_MODE="live").code == 2


def test_json_gives_one_object() -> None:
    done = agentrun("specs/triage.yaml", "--json")
    (line,) = done.lines()
    outcome = line["outcome"]
    assert (outcome["status"], outcome["replayed"], done.err) == ("completed", True, "")
    assert outcome["output"].items() >= ANSWER.items()


def test_a_case_by_its_name() -> None:
    assert agentrun("specs/triage.yaml", "--case", "default").code == 0
    wrong = agentrun("specs/triage.yaml", "--case", "defualt")
    assert (wrong.code, 'did you mean "default"?' in wrong.err) == (2, True)


def test_a_case_brings_its_own_profile(project: Path) -> None:
    edit(project / "specs/triage.yaml", "output:\n", "profiles: {short: {budgets: {turns: 2}}}\n\noutput:\n")
    cases = project / "specs/triage.cases.yaml"
    cases.write_text(cases.read_text() + "  - {name: brief, profile: short}\n")
    shutil.copy(project / "cassettes/triage/default.yaml", project / "cassettes/triage/brief.yaml")
    assert "case brief" in agentrun("specs/triage.yaml", "--case", "brief", cwd=project).err
    assert "case brief" in agentrun("specs/triage.yaml", "--profile", "short", cwd=project).err
    assert "case default" in agentrun("specs/triage.yaml", cwd=project).err
    assert agentrun("specs/triage.yaml", "--case", "brief", "--profile", "short", cwd=project).code == 2


def test_the_recorded_message_may_be_given_as_text_or_on_stdin() -> None:
    text = "".join(
        line.removeprefix("  ") + "\n"
        for line in (ROOT / "specs" / "triage.yaml").read_text().split("input: |\n")[1].split("\n")[:2]
    ).rstrip("\n")
    assert agentrun("specs/triage.yaml", text).code == 0
    assert agentrun("specs/triage.yaml", "-", stdin=text.encode()).code == 0
    assert agentrun("specs/triage.yaml", "-", stdin=b"\xff").code == 2
    assert agentrun("specs/triage.yaml", "-", stdin=b"x" * (1024 * 1024 + 1)).code == 2


def nothing_to_replay(done: Done) -> None:
    assert done.code == 3
    assert "cassette.miss: nothing to replay" in done.err
    assert "recorded cases: default" in done.err


def test_another_message_is_never_answered_by_a_recording() -> None:
    nothing_to_replay(agentrun("specs/triage.yaml", "Something else"))
    nothing_to_replay(agentrun("specs/triage.yaml", "--param", "product=Acme Mail"))


def test_a_changed_prompt_is_a_miss_that_says_what_differs(project: Path) -> None:
    edit(project / "specs/prompts/triage.md.j2", "at most one sentence", "at most two sentences")
    done = agentrun("specs/triage.yaml", cwd=project)
    assert done.code == 3
    assert done.out == ""
    assert "cassette.miss" in done.err
    assert "two sentences" in done.err
    assert "messages[0].content" in done.err


def test_a_damaged_cassette_is_an_error_with_its_line(project: Path) -> None:
    path = project / "cassettes/triage/default.yaml"
    path.write_text(path.read_text()[:500])
    done = agentrun("specs/triage.yaml", cwd=project)
    assert (done.code, "cassette.damaged" in done.err) == (3, True)


def test_an_answer_that_breaks_its_contract_fails(project: Path) -> None:
    edit(project / "cassettes/triage/default.yaml", r"\"high\"", r"\"soon\"")
    edit(project / "specs/triage.yaml", "repairs: 2", "repairs: 0")
    done = agentrun("specs/triage.yaml", cwd=project)
    assert (done.code, done.out, "output.invalid" in done.err) == (6, "", True)


def test_a_spec_that_this_version_cannot_run_is_refused_before_anything_happens() -> None:
    done = agentrun("specs/support.yaml")
    assert (done.code, done.out) == (2, "")
    assert "specs/support.yaml:26:3  spec.not_built  model.stream" in done.err


def test_the_journal_can_be_kept_and_is_the_same_every_time(tmp_path: Path) -> None:
    journals = []
    for seed in "012":
        path = tmp_path / f"{seed}.jsonl"
        done = agentrun("specs/triage.yaml", "--journal", path, PYTHONHASHSEED=seed, TZ="Asia/Tokyo", LANG="C")
        assert done.code == 0
        journals.append(path.read_bytes())
    assert len(set(journals)) == 1
    facts = [json.loads(line)["fact"]["type"] for line in journals[0].splitlines()]
    assert facts == ["run_started", "model_asked", "model_replied", "answer_reached", "run_stopped"]


def test_control_characters_of_the_model_do_not_reach_the_terminal(project: Path) -> None:
    edit(project / "specs/triage.yaml", "output:\n", "admission: {max_chars: 10k}\nunused:\n")
    spec = (project / "specs/triage.yaml").read_text().split("unused:\n")[0]
    (project / "specs/triage.yaml").write_text(spec)
    cassette = project / "cassettes/triage/default.yaml"
    body = cassette.read_text()
    start, end = body.index('        "response_format"'), body.index('        "temperature"')
    cassette.write_text((body[:start] + body[end:]).replace(r"{\"topic\": \"outage\"", r"\u001b]52;c;eA==\u0007{"))
    done = agentrun("specs/triage.yaml", cwd=project)
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "\\x1b]52" in done.out
