"""`agentrun test` reports one difference once: grouped by cause, with the line that changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from .command import ROOT, CommandResult, agentrun
from .desk_project import TURNS
from .suite_project import ANOTHER, CASES, DEFAULT_CASE, SNAPSHOT_CASE, Suite

PROMPT = "specs/prompts/support.md.j2"
LONG = """\
  - name: long
    cassette: default
    assert:
      - {type: turns, max: 9}
      - {type: contains, value: nowhere}
  - name: talk
    cassette: default
    turns:
      - input: Please refund 20 of order 1042.
        assert:
          - {type: turns, max: 9}
          - type: contains
            value: nowhere
"""
DEFAULTS = """\
agentrun: "1"
defaults:
  assert:
    - {type: turns, max: 9}
    - {type: contains, value: nowhere}
cases:
"""


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name in ("specs", "cassettes"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text('[tool.agentrun]\nimport_roots = ["specs"]\n', encoding="utf-8")
    return folder


@pytest.fixture
def support(examples: Path, tmp_path: Path) -> Path:
    """A project with the example agents."""
    return shutil.copytree(examples, tmp_path / "project")


def edit(project: Path, name: str, old: str, new: str) -> None:
    text = (project / name).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (project / name).write_text(text.replace(old, new), encoding="utf-8")


def run(project: Path, *args: str, **environment: str) -> CommandResult:
    return agentrun("test", "specs/support.yaml", *args, cwd=project, stdin=b"", **environment)


def line_with(file: Path, text: str) -> int:
    return next(n for n, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if text in line)


def annotation_lines(done: CommandResult) -> list[str]:
    return [line for line in done.out.splitlines() if line.startswith("::error ")]


def test_eleven_cases_with_one_changed_prompt_line_are_reported_once(support: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    done = run(support)
    assert done.code == 3
    assert done.out.splitlines()[0] == f"11 cases: instructions line 5 changed  ({PROMPT}:5)"
    assert done.out.count("five days") == done.out.count("three days") == 1
    assert "  specs/support.cases.yaml: default, approval, denial, twice, us, conversation, retry, lost" in done.out
    assert "11 missed" in done.out
    assert len((done.out + done.err).splitlines()) <= 40


def test_verbose_shows_the_details_of_every_case(support: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    done = run(support, "-v")
    assert done.out.splitlines()[0] == f"11 cases: instructions line 5 changed  ({PROMPT}:5)"
    assert done.out.count("MISSED  specs/support.cases.yaml::") == 11
    assert done.out.count("now:      - An order is late") == 11
    assert " -v" not in done.out


def test_single_case_shows_its_details_after_its_cause(support: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    lines = run(support, "-k", "approval").out.splitlines()
    assert lines[0] == f"1 case: instructions line 5 changed  ({PROMPT}:5)"
    assert lines[2].startswith("MISSED  specs/support.cases.yaml::approval")
    assert sum("now:" in line for line in lines) == 1
    assert " -v" not in lines[-1]


def test_same_line_rendered_differently_is_one_cause(support: Path) -> None:
    """The line has the number of the order, which differs from case to case."""
    edit(support, PROMPT, "You help customers", "You gladly help customers")
    (cause,) = run(support, "--json").lines()[-1]["summary"]["causes"]
    assert (len(cause["cases"]), len(cause["texts"]), cause["file"], cause["line"]) == (11, 5, PROMPT, 1)


def test_two_causes_with_the_same_cases_name_them_once(support: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    edit(support, PROMPT, "Look the order up", "First look the order up")
    out = run(support).out
    assert out.count("11 cases: instructions line ") == 2
    assert out.count("default, approval, denial") == 1


def test_only_the_first_causes_are_listed_without_verbose(suite: Suite) -> None:
    cases = [ANOTHER.replace("another", f"a{n}").replace("tags", f"input: Case {n}, tags") for n in range(9)]
    suite.write(*cases)
    out = suite.test().out
    assert out.count("1 case: the message changed") == 8
    assert "1 more difference: add -v\n" in out
    assert suite.test("-v").out.count("1 case: the message changed") == 9


def test_cases_without_a_cassette_are_one_cause(suite: Suite) -> None:
    suite.write("  - {name: one}\n", "  - {name: two}\n")
    lines = suite.test().out.splitlines()
    assert lines[:3] == ["2 cases: there is no cassette", f"  {CASES}: one, two", ""]


def test_hint_that_all_cases_share_is_shown(suite: Suite) -> None:
    check = "import socket\ndef check(run):\n    socket.create_connection(('127.0.0.1', 9))\n"
    (suite.root / "python/judge.py").write_text(check, encoding="utf-8")
    suite.write(
        DEFAULT_CASE, ANOTHER, head=DEFAULTS.replace("contains, value: nowhere", "python, value: 'judge:check'")
    )
    lines = suite.test().out.splitlines()
    assert lines[0].startswith("2 cases: python: judge:check tried to reach 127.0.0.1:9")
    assert lines[1].startswith("  → add `network: true` to the assertion")


def test_annotation_points_at_the_prompt_line_once_for_all_cases(support: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    (line,) = annotation_lines(run(support, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(support.parent)))
    assert line.startswith(f"::error file=project/{PROMPT},line=5,title=11 cases%3A instructions line 5 changed")


def test_annotation_points_at_the_rule_that_changed(support: Path) -> None:
    edit(support, "specs/support.yaml", "args.amount > 50.0", "args.amount > 30.0")
    (line,) = annotation_lines(run(support, GITHUB_ACTIONS="true"))
    number = line_with(support / "specs/support.yaml", "- id: big-refunds")
    assert line.startswith(f"::error file=specs/support.yaml,line={number},title=4 cases%3A the ruling on refund")


def test_annotation_points_at_the_setting_that_changed(support: Path) -> None:
    edit(support, "specs/support.yaml", "  temperature: 0\n", "  temperature: 0.5\n")
    (line,) = annotation_lines(run(support, GITHUB_ACTIONS="true"))
    number = line_with(support / "specs/support.yaml", "temperature: ")
    assert line.startswith(f"::error file=specs/support.yaml,line={number},title=11 cases%3A temperature is 0.5")


def test_annotation_points_at_the_failed_assertion(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, LONG)
    suite.setenv(GITHUB_ACTIONS="true")
    lines = [line for line in suite.test().out.splitlines() if line.startswith("::error ")]
    assert [line.partition("::contains")[0] for line in lines] == [
        f"::error file={CASES},line=8,title=failed%3A long",
        f"::error file={CASES},line=15,title=failed%3A talk",
    ]


def test_annotation_of_an_unknown_line_points_at_the_case(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, "  - {name: new}\n")
    suite.setenv(GITHUB_ACTIONS="true")
    (line,) = [line for line in suite.test().out.splitlines() if line.startswith("::error ")]
    assert line.startswith(f"::error file={CASES},line=4,title=missed%3A new::")


def test_annotation_of_a_project_elsewhere_has_its_own_path(support: Path, tmp_path: Path) -> None:
    """The path of a template is relative to its project, and the command may run anywhere."""
    edit(support, PROMPT, "three days", "five days")
    (tmp_path / "elsewhere").mkdir()
    done = agentrun(
        "test",
        support / "specs/support.yaml",
        cwd=tmp_path / "elsewhere",
        GITHUB_ACTIONS="true",
        GITHUB_WORKSPACE=str(tmp_path),
    )
    (line,) = annotation_lines(done)
    assert line.startswith(f"::error file=project/{PROMPT},line=5,")


def test_step_summary_groups_by_cause(support: Path, tmp_path: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    run(support, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    assert "- 11 cases&#58; instructions line 5 changed" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_failed_assertion_has_its_own_line_everywhere(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, LONG)
    out = suite.test("-v").out
    assert f"FAILED  {CASES}::long  ({CASES}:4)" in out
    assert f"  ({CASES}:8)\n" in out
    assert f"  ({CASES}:15)\n" in out
    cases = [line["case"] for line in suite.test("--json").lines()[:-1]]
    assert [[(each["file"], each["line"]) for each in case["failures"]] for case in cases] == [
        [],
        [(CASES, 8)],
        [(CASES, 15)],
    ]
    suite.test("--junit", "junit.xml")
    root = ET.parse("junit.xml").getroot()  # noqa: S314  # our own file
    texts = [failure.text or "" for failure in root.iter("failure")]
    assert [text.partition("\n")[0] for text in texts] == [f"{CASES}:8", f"{CASES}:15"]


def test_assertion_of_the_defaults_is_one_cause_at_its_line(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER, head=DEFAULTS)
    assert suite.test().out.startswith('2 cases: contains: the answer does not contain "nowhere"')
    (cause,) = suite.test("--json").summary()["causes"]
    assert (cause["file"], cause["line"], len(cause["cases"])) == (CASES, 5, 2)


def test_one_assertion_with_different_results_lists_them_by_case(suite: Suite) -> None:
    head = DEFAULTS.replace("contains, value: nowhere", "tool-calls, value: 0")
    suite.write(
        DEFAULT_CASE,
        "  - {name: down, cassette: default, faults: [{at: 'model#2', inject: {status: 400}}],"
        " assert: [{type: outcome, value: 'provider.*'}]}\n",
        head=head,
    )
    assert suite.test().out.splitlines()[:4] == [
        f"2 cases: tool-calls failed  ({CASES}:5)",
        "  default: 2 calls made; expected: exactly 0 calls",
        "  down: 1 call made; expected: exactly 0 calls",
        f"  {CASES}: default, down",
    ]


def test_changed_reason_of_a_question_is_one_cause_at_its_rule(suite: Suite) -> None:
    suite.write(SNAPSHOT_CASE)
    assert suite.test("--update").code == 0
    suite.edit("specs/desk.yaml", "A person signs off.", "Someone signs off.")
    for cases, title in (
        (SNAPSHOT_CASE, "the ruling on refund is still ask"),
        (DEFAULT_CASE, "the question about refund"),
    ):
        suite.write(cases)
        (cause,) = suite.test("--json").summary()["causes"]
        assert cause["title"].startswith(title)
        assert (cause["file"], cause["line"]) == ("specs/desk.yaml", 13)


def test_details_of_a_single_case_do_not_repeat_its_failure(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, LONG.partition("  - name: talk")[0])
    out = suite.test().out
    assert out.startswith(f"FAILED  {CASES}::long")
    assert out.count("does not contain") == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("provider: openai", "provider: opnai", "there is no provider 'opnai'"),
        ("turns: 8", "turn: 8", 'unknown key "turn"'),
        ("before you answer", "before you reply", "recorded: Look an order up before you answer."),
    ],
)
def test_reason_of_a_single_case_is_reported_once(suite: Suite, old: str, new: str, text: str) -> None:
    suite.write("  - {name: default, assert: [{type: contains, value: refund}, {type: turns, min: 2}]}\n")
    suite.edit("specs/desk.yaml", old, new)
    out = suite.test().out
    assert out.count(text) == 1, out
    assert "contains" not in out


def test_missing_answer_of_a_failed_run_is_not_reported_again(suite: Suite) -> None:
    assertions = "{type: contains, value: refund}, {type: not-contains, value: x}, {type: turns, max: 1}"
    fault = "{at: 'model#2', inject: {status: 400}}"
    suite.write(f"  - {{name: down, cassette: default, faults: [{fault}], assert: [{assertions}]}}\n")
    (case, _) = suite.test("--json").lines()
    assert [each["assertion"] for each in case["case"]["failures"]] == ["outcome", "turns"]


def test_table_of_the_step_summary_has_the_titles_of_causes(support: Path, tmp_path: Path) -> None:
    edit(support, PROMPT, "three days", "five days")
    run(support, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    rows = [line for line in (tmp_path / "summary.md").read_text(encoding="utf-8").splitlines() if "default" in line]
    assert rows == ["| specs/support.cases.yaml&#58;&#58;default | missed | instructions line 5 changed |"]


def test_changed_source_of_a_tool_is_mentioned_once(support: Path) -> None:
    path = support / "specs/shop/refunds.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n# a comment\n", encoding="utf-8")
    done = run(support)
    assert done.code == 0
    assert done.out.splitlines() == [
        "Tools whose source changed since the recording; a replay uses what they returned then:",
        "  refund  (11 cases)",
        "",
        "11 passed",
    ]
    summary = run(support, "--json").lines()[-1]["summary"]
    assert [(each["tool"], len(each["cases"])) for each in summary["changed_tools"]] == [("refund", 11)]


def test_unchanged_sources_are_not_mentioned(support: Path) -> None:
    assert run(support).out == "11 passed\n"


def test_cassette_without_sources_mentions_none(suite: Suite) -> None:
    suite.write(DEFAULT_CASE)
    suite.edit("cassettes/desk/default.yaml", "  tool_sources:", "  other:")
    suite.edit("python/shop.py", "39.9", "49.9")
    assert suite.test().out == "1 passed\n"


def test_recording_that_keeps_the_result_of_a_tool_keeps_its_source(suite: Suite) -> None:
    """The result is still that of the old source. With `all` the tool runs again."""
    suite.write("  - {name: default, approvals: {refund: approved}}\n")
    suite.edit("python/shop.py", "39.9", "49.9")
    mention = "  lookup_order  (specs/desk.cases.yaml::default)\n  refund  (specs/desk.cases.yaml::default)\n"
    with suite.provider(TURNS):
        assert suite.test("--record", "new", "--yes").code == 0
        assert mention in suite.test().out
        assert suite.test("--record", "all", "--yes").code == 0
    assert suite.test().out == "1 passed\n"


def test_verbose_cannot_be_combined_with_quiet_or_json(suite: Suite) -> None:
    for other in ("-q", "--json"):
        ran = suite.test("-v", other)
        assert ran.code == 2
        assert "--verbose cannot be combined with --" in (ran.err or json.loads(ran.out)["error"]["message"])
