"""`agentrun SPEC`: its output streams, the cassette it replays, and its errors without one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .command import ROOT, agentrun

FACTS = ["run_started", "model_asked", "model_replied", "answer_reached", "ruled", "run_stopped"]
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


def test_answer_is_on_stdout_and_progress_on_stderr() -> None:
    done = agentrun("specs/triage.yaml")
    assert done.code == 0
    assert json.loads(done.out).items() >= ANSWER.items()
    first, *_, last = done.err.splitlines()
    assert first == "replay: cassettes/triage/default.yaml (case default; nothing is sent)"
    assert last == "completed in 1 turn, 214 tokens in, 46 out, $0.00016 (replayed)"
    assert agentrun("run", "specs/triage.yaml").out == done.out


def test_quiet_leaves_only_the_answer() -> None:
    done = agentrun("specs/triage.yaml", "--quiet")
    assert (done.err, bool(done.out)) == ("", True)


def test_options_may_come_before_the_spec_or_from_variables() -> None:
    assert agentrun("--mode", "replay", "--quiet", "specs/triage.yaml").code == 0
    assert agentrun("specs/triage.yaml", AGENTRUN_MODE="replay").code == 0
    live = agentrun("specs/triage.yaml", AGENTRUN_MODE="live")
    assert (live.code, "host.missing: OPENAI_API_KEY is not set" in live.err) == (2, True)


def test_json_gives_one_object_per_line() -> None:
    """How it starts, each record of the journal, how it ends."""
    done = agentrun("specs/triage.yaml", "--json")
    start, *between, end = done.lines()
    why = "replay: cassettes/triage/default.yaml (case default; nothing is sent)"
    assert start == {"start": {"mode": "replay", "why": why, "case": "default", "cassette": "default.yaml"}}
    assert [line["record"]["fact"]["type"] for line in between] == FACTS
    assert [line["record"]["seq"] for line in between] == list(range(1, len(FACTS) + 1))
    outcome = end["outcome"]
    assert {line["run"] for line in between} == {outcome["run"]}
    assert (outcome["status"], outcome["replayed"], outcome["tier"]) == ("completed", True, "exact")
    assert (outcome["exit"], done.code, done.err) == (0, 0, "")
    assert outcome["output"].items() >= ANSWER.items()


def test_case_is_selected_by_name_and_a_wrong_name_gets_a_suggestion() -> None:
    assert agentrun("specs/triage.yaml", "--case", "default").code == 0
    wrong = agentrun("specs/triage.yaml", "--case", "defualt")
    assert (wrong.code, 'did you mean "default"?' in wrong.err) == (2, True)


def test_case_uses_its_own_profile(project: Path) -> None:
    edit(project / "specs/triage.yaml", "output:\n", "profiles: {short: {budgets: {turns: 2}}}\n\noutput:\n")
    cases = project / "specs/triage.cases.yaml"
    cases.write_text(cases.read_text() + "  - {name: brief, profile: short}\n")
    shutil.copy(project / "cassettes/triage/default.yaml", project / "cassettes/triage/brief.yaml")
    assert "case brief" in agentrun("specs/triage.yaml", "--case", "brief", cwd=project).err
    assert "case brief" in agentrun("specs/triage.yaml", "--profile", "short", cwd=project).err
    assert "case default" in agentrun("specs/triage.yaml", cwd=project).err
    assert agentrun("specs/triage.yaml", "--case", "brief", "--profile", "short", cwd=project).code == 0
    refused = agentrun("specs/triage.yaml", "--case", "default", "--profile", "short", cwd=project)
    assert refused.code == 2
    assert 'other values: profile is none in the case, "short" in this command\n' in refused.err


def test_two_cases_with_the_same_input_are_announced(project: Path) -> None:
    cases = project / "specs/triage.cases.yaml"
    cases.write_text(cases.read_text() + "  - {name: twin}\n")
    announced = "case twin has the same input: choose with --case NAME"
    assert announced in agentrun("specs/triage.yaml", cwd=project).err.splitlines()[0]
    assert "the same input" not in agentrun("specs/triage.yaml", "--case", "default", cwd=project).err
    cases.write_text(cases.read_text() + "  - {name: third}\n")
    shutil.copy(project / "cassettes/triage/default.yaml", project / "cassettes/triage/third.yaml")
    first = agentrun("specs/triage.yaml", cwd=project).err.splitlines()[0]
    assert "(case default; nothing is sent); cases twin and third have the same input" in first


def test_message_may_be_an_argument_or_stdin() -> None:
    text = "".join(
        line.removeprefix("  ") + "\n"
        for line in (ROOT / "specs" / "triage.yaml").read_text().split("input: |\n")[1].split("\n")[:2]
    ).rstrip("\n")
    assert agentrun("specs/triage.yaml", text).code == 0
    assert agentrun("specs/triage.yaml", "-", stdin=text.encode()).code == 0
    assert agentrun("specs/triage.yaml", "-", stdin=b"\xff").code == 2
    assert agentrun("specs/triage.yaml", "-", stdin=b"x" * (1024 * 1024 + 1)).code == 2


ANOTHER = [("Something else",), ("--param", "product=Acme Mail")]


@pytest.mark.parametrize("another", ANOTHER, ids=["message", "param"])
@pytest.mark.parametrize(("mode", "ci"), [("replay", ""), ("auto", "true"), ("auto", "1")])
def test_unrecorded_message_or_param_is_a_miss_in_replay_and_ci(another: tuple[str, ...], mode: str, ci: str) -> None:
    done = agentrun("specs/triage.yaml", *another, "--mode", mode, OPENAI_API_KEY="not-a-key", CI=ci)
    assert (done.code, done.out) == (3, "")
    assert "cassette.miss: nothing to replay" in done.err
    assert ("in CI a run is live only with --mode live" in done.err) is bool(ci)
    assert "--case NAME: default, approval, denial, retry" in done.err


@pytest.mark.parametrize("another", ANOTHER, ids=["message", "param"])
@pytest.mark.parametrize("ci", ["", "0", "false"])
def test_unrecorded_message_or_param_goes_live_outside_ci(another: tuple[str, ...], ci: str) -> None:
    """As far as it can here: without a key nothing is sent, and the recorded cases are offered."""
    done = agentrun("specs/triage.yaml", *another, CI=ci)
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error == "host.missing: OPENAI_API_KEY is not set"
    assert hint.startswith("  → no recorded case has this message, params and profile, so the run would be live; ")
    assert "or replay a recorded case: --case default | approval | denial | retry" in hint


def test_a_changed_prompt_is_a_miss_that_says_what_differs(project: Path) -> None:
    edit(project / "specs/prompts/triage.md.j2", "at most one sentence", "at most two sentences")
    done = agentrun("specs/triage.yaml", cwd=project)
    assert done.code == 3
    assert done.out == ""
    assert "cassette.miss in turn 1" in done.err
    told = [line.strip() for line in done.err.splitlines()]
    start = told.index("instructions line 11, from specs/prompts/triage.md.j2 line 9:")
    assert told[start + 1 : -1] == [
        "recorded: writer, and a summary in at most one sentence. Do not answer the message itself.",
        "now:      writer, and a summary in at most two sentences. Do not answer the message itself.",
        "because the template changed",
        "likely cause: the spec's section instructions changed since the recording",
        "to accept it: agentrun specs/triage.yaml --case default --record new",
    ]


def test_a_damaged_cassette_is_an_error_with_its_line(project: Path) -> None:
    path = project / "cassettes/triage/default.yaml"
    path.write_text(path.read_text()[:500])
    done = agentrun("specs/triage.yaml", cwd=project)
    assert (done.code, "cassette.damaged" in done.err) == (3, True)


def test_answer_that_breaks_the_output_schema_fails(project: Path) -> None:
    edit(project / "cassettes/triage/default.yaml", r"\"high\"", r"\"soon\"")
    edit(project / "specs/triage.yaml", "repairs: 2", "repairs: 0")
    done = agentrun("specs/triage.yaml", cwd=project)
    assert (done.code, done.out, "output.invalid" in done.err) == (6, "", True)


def test_replay_writes_the_same_journal_every_time(tmp_path: Path) -> None:
    journals = []
    for seed in "012":
        path = tmp_path / f"{seed}.jsonl"
        done = agentrun("specs/triage.yaml", "--journal", path, PYTHONHASHSEED=seed, TZ="Asia/Tokyo", LANG="C")
        assert done.code == 0
        journals.append(path.read_bytes())
    assert len(set(journals)) == 1
    facts = [json.loads(line)["fact"]["type"] for line in journals[0].splitlines()]
    assert facts == FACTS


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
