"""Changes planted in an agent or in its cassette are reported as what they are."""

import shutil
from pathlib import Path

import pytest

from agentrun.testing.suite.discovery import read_located_cases
from agentrun.testing.suite.evaluation import evaluate_case
from agentrun.testing.suite.replay import CompiledAgents
from agentrun.testing.suite.snapshots import accepted_snapshots
from agentrun.testing.suite.verdict import CaseVerdict

from .planted_changes import ROOT, PlantedProject

PROMPT, TOOL, SPEC, CASSETTE = (
    "specs/prompts/support.md.j2",
    "specs/shop/refunds.py",
    "specs/support.yaml",
    "cassettes/support/default.yaml",
)
MISS = "the cassette has no reply to this request: "
RULING_CHANGED = "turn 3: the ruling on refund changed: allow → "
ASKED_BY = "by big-refunds: a person signs off refunds above 50"
SECTION = "the spec's section {} changed since the recording"

# Where, what becomes what; the status, what of the first failure, and all changes.
PLANTED_CHANGES: dict[str, tuple[tuple[str, str, str], str, str, list[str]]] = {
    "prompt": (
        (PROMPT, "three days ago", "four days ago"),
        "missed",
        "from specs/prompts/support.md.j2 line 5, because the template changed",
        [
            (
                'instructions line 5 is "- An order is late when it was due more than four days ago.", but the cassette'
                ' has "- An order is late when it was due more than three days ago.", from specs/prompts/support.md.j2'
                " line 5, because the template changed"
            ),
        ],
    ),
    "tool-schema": (
        (TOOL, 'reason: str = ""', 'reason: str = "", note: str = ""'),
        "missed",
        "tool refund: parameters.properties.note was added",
        ["tool refund: parameters.properties.note was added"],
    ),
    "policy-asks": (
        (SPEC, "args.amount > 50.0", "args.amount > 30.0"),
        "missed",
        f"{RULING_CHANGED}ask ({ASKED_BY}; was by small-refunds)",
        [f"{RULING_CHANGED}ask ({ASKED_BY}; was by small-refunds)"],
    ),
    "policy-denies": (
        (SPEC, "args.amount <= 50.0", "args.amount <= 30.0"),
        "missed",
        f"{RULING_CHANGED}deny (by default; was by small-refunds)",
        [
            f"{RULING_CHANGED}deny (by default; was by small-refunds)",
            'turn 3: the end of refund: a result ({"order_id":"1042","refunded":39.9}) → tool.denied',
        ],
    ),
    "budget": (
        (SPEC, "turns: 12, grace: 2", "turns: 3"),
        "failed",
        "the outcome is budget.turns, not completed",
        [
            (
                "turn 4: the step is gone: it says “Order 1042 was due on 10 January and went to the wrong region, so"
                " it is late. I have refunded the whole 39.90 euro; a c… (156B)”"
            ),
            "the outcome: completed → budget.turns (budget.turns: the budget of 3 turns is used up)",
            "spend: 2.3k tokens, $0.0011 → 1.6k tokens, $0.00076",
        ],
    ),
    "last-reply": (
        (CASSETTE, "have refunded th", "have returned th"),
        "failed",
        "the journal differs from the accepted one",
        [
            (
                "turn 4: the answer: “…late. I have refunded the whole 39.90 euro; a confirmation goes to [redacted:e…”"
                " → “…late. I have returned the whole 39.90 euro; a confirmation goes to [redacted:e…”"
            )
        ],
    ),
    "earlier-reply": (
        (CASSETTE, '{"content":"I loo', '{"content":"I pee'),
        "missed",
        'the text is "I peek at the order first.", but the cassette has "I look at the order first."',
        ["turn 1: the reply: “I look at the order first.” → “I peek at the order first.”"],
    ),
    "reply-with-a-call": (
        (CASSETTE, ":39.9,", ":29.9,"),
        "missed",
        "the call of refund: amount is 29.9, but the cassette has 39.9",
        ["turn 3: the call of refund: amount 39.9 → 29.9"],
    ),
    "tool-result": (
        (CASSETTE, '"state":"in transit","total":39.9}', '"state":"in transit","total":49.9}'),
        "missed",
        "the result of lookup_order: total is 49.9, but the cassette has 39.9",
        ["turn 1: the result of lookup_order changed: total 39.9 → 49.9"],
    ),
}


def texts(verdict: CaseVerdict) -> list[str]:
    return [change.text for change in verdict.changes]


@pytest.fixture(scope="session")
def support(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted") / "project"
    project = PlantedProject(root)
    project.make()
    project.accept()
    return root


@pytest.fixture
def project(support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedProject:
    """A project that is as it was accepted, and the working directory."""
    shutil.copytree(support, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return PlantedProject(tmp_path / "project")


def test_unchanged_project_passes(project: PlantedProject) -> None:
    verdict = project.verdict()
    assert (verdict.status, verdict.failures, verdict.changes) == ("passed", (), ())


@pytest.mark.parametrize("name", PLANTED_CHANGES)
def test_planted_change_is_reported(project: PlantedProject, name: str) -> None:
    (where, old, new), status, failure, changes = PLANTED_CHANGES[name]
    project.plant(where, old, new)
    verdict = project.verdict()
    first = verdict.failures[0]
    assert verdict.status == status
    assert failure in f"{first.message}\n{first.detail}"
    assert texts(verdict) == changes


def test_changed_spec_and_changed_cassette_are_both_reported(project: PlantedProject) -> None:
    project.plant(CASSETTE, '"state":"in transit","total":39.9}', '"state":"in transit","total":49.9}')
    project.plant(SPEC, "turns: 12", "turns: 11")
    assert texts(project.verdict()) == [
        "turn 1: the result of lookup_order changed: total 39.9 → 49.9",
        SECTION.format("budgets"),
    ]


CHANGED_PLACES: dict[str, tuple[str, str | None]] = {
    "prompt": ("instructions line 5 changed", "specs/prompts/support.md.j2:5"),
    "tool-schema": ("tool refund: parameters.properties.note was added", None),
    "policy-asks": (
        f"the ruling on refund changed: allow → ask ({ASKED_BY}; was by small-refunds)",
        "specs/support.yaml:53",
    ),
    "policy-denies": (
        "the ruling on refund changed: allow → deny (by default; was by small-refunds)",
        "specs/support.yaml:50",
    ),
    "earlier-reply": ("the reply: “I look at the order first.” → “I peek at the order first.”", None),
}
"""The first change, without its turn, and the line that changed."""


@pytest.mark.parametrize("name", CHANGED_PLACES)
def test_first_change_has_a_title_and_the_line_that_changed(project: PlantedProject, name: str) -> None:
    project.plant(*PLANTED_CHANGES[name][0])
    first = project.verdict().changes[0]
    assert (first.title, first.place) == CHANGED_PLACES[name]


def test_ruling_has_no_line_if_the_policy_did_not_change(project: PlantedProject) -> None:
    """The rule decides as before, about another amount."""
    project.plant(CASSETTE, ":39.9,", ":59.9,")
    (ruling,) = [each for each in project.verdict().changes if "the ruling on refund" in each.title]
    assert ruling.place is None


def test_line_of_an_included_template_is_found(project: PlantedProject) -> None:
    project.plant(PROMPT, "three days ago", "three days ago{% include 'more.md.j2' %}")
    (project.root / "specs/prompts/more.md.j2").write_text("\nAnd be kind.\n", encoding="utf-8")
    (kind,) = [each for each in project.verdict().changes if each.current_line == "And be kind."]
    assert (kind.title, kind.place) == ("instructions line 6 is new", "specs/prompts/more.md.j2:2")


def test_line_that_only_the_params_changed_has_no_place(project: PlantedProject) -> None:
    project.plant("specs/support.cases.yaml", "default\n", "default\n    params: {region: us}\n")
    changes = project.verdict().changes
    assert changes
    assert all(each.place is None for each in changes)
    assert 'because params.region changed from "eu" to "us"' in changes[0].title


def test_rendered_run_ends_with_its_fault(project: PlantedProject) -> None:
    project.plant(SPEC, "turns: 12, grace: 2", "turns: 3")
    *_, end, hint = project.verdict().steps.split("\n")
    assert end == "budget.turns: the budget of 3 turns is used up"
    assert hint.startswith("  → ")


def test_rendered_run_does_not_repeat_the_miss(project: PlantedProject) -> None:
    project.plant(SPEC, "temperature: 0", "temperature: 1")
    assert "cassette.miss" not in project.verdict().steps


BARE: dict[str, list[str]] = {
    "policy-asks": [
        f"the ruling on refund is now ask ({ASKED_BY}), unlike in the recording",
    ],
    "policy-denies": [
        "the ruling on refund is now deny (by default), unlike in the recording",
    ],
    "earlier-reply": ['the model\'s reply changed: "I look at the order first." → "I peek at the order first."'],
    "reply-with-a-call": ["the call of refund: amount 39.9 → 29.9"],
    "tool-result": ["the result of lookup_order changed: total 39.9 → 49.9"],
    "budget": [SECTION.format("budgets")],
}
"""What is told of a case that has no snapshot."""


@pytest.mark.parametrize("name", BARE)
def test_planted_change_is_reported_without_a_snapshot(project: PlantedProject, name: str) -> None:
    (where, old, new), status, _, _ = PLANTED_CHANGES[name]
    project.plant("specs/support.cases.yaml", "    assert: [{type: journal-snapshot}]\n", "")
    project.plant(where, old, new)
    verdict = project.verdict()
    assert verdict.status == status
    assert texts(verdict) == BARE[name]


APPROVAL = """\
agentrun: "1"
cases:
  - name: approval
    input: "My order 2077 arrived broken. I want all my money back."
    params: {order_id: "2077"}
    approvals: {refund: approved}
"""


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize(
    ("planted", "with_snapshot", "without"),
    [
        (
            ("cassettes/support/approval.yaml", '"refunded":120}', '"refunded":119}'),
            ["turn 2: the result of refund changed: refunded 120 → 119"],
            ["the result of refund changed: refunded 120 → 119"],
        ),
        (
            ("specs/support.cases.yaml", "refund: approved", "refund: denied"),
            [
                "turn 2: the approval of refund: approved by case approval → denied by case approval",
                'turn 2: the end of refund: a result ({"order_id":"2077","refunded":120}) → tool.denied',
            ],
            ["the answer about refund is now denied by case approval"],
        ),
        (
            (
                "specs/support.cases.yaml",
                "    approvals:",
                "    faults: [{at: 'tool:refund', inject: {error: no}}]\n    approvals:",
            ),
            ['turn 2: the end of refund: a result ({"order_id":"2077","refunded":120}) → tool.execution: no'],
            [],
        ),
    ],
    ids=["result", "answer", "failure"],
)
def test_recorded_approval_is_not_reported_as_new(
    project: PlantedProject,
    planted: tuple[str, str, str],
    with_snapshot: list[str],
    without: list[str],
    snapshot: bool,
) -> None:
    """A person is asked about the refund, as it was recorded: the policy is not what changed."""
    shutil.copy(ROOT / "cassettes" / "support" / "approval.yaml", project.cassette.parent)
    assertions = "    assert: [{type: journal-snapshot}]\n" if snapshot else ""
    (project.root / "specs" / "support.cases.yaml").write_text(APPROVAL + assertions, encoding="utf-8")
    project.accept()
    project.plant(*planted)
    assert texts(project.verdict()) == (with_snapshot if snapshot else without)


RESEARCH = """\
agentrun: "1"
cases:
  - name: default
  - name: approval
    input: "Are the ferry steps in use? Keep a note of the answer, please."
    approvals: {library.add_note: approved}
"""
READER, RESEARCHER = "specs/reader.yaml", "specs/researcher.yaml"
IN_READER: dict[str, tuple[str, tuple[str, str, str], list[str]]] = {
    "prompt": (
        "default",
        (READER, "Two or three sentences are enough", "One is enough"),
        [
            (
                'the sub-agent reader: instructions line 2 is "Use only what the document says. One is enough.", but'
                ' the cassette has "Use only what the document says. Two or three sentences are enough."'
            ),
        ],
    ),
    "setting": (
        "default",
        (READER, "max_output_tokens: 500", "max_output_tokens: 501"),
        ["the sub-agent reader: max_tokens is 501, but the cassette has 500"],
    ),
    "policy": (
        "default",
        (READER, '"args.document == params.document"', "args.document == 'tides'"),
        [
            "the ruling on reader/library.read is now deny (by default), unlike in the recording",
        ],
    ),
    "no-question": (
        "approval",
        (RESEARCHER, "ask: library.add_note", "allow: library.add_note"),
        [
            "1 of 10 recorded interactions were not played: the question about library.add_note",
            SECTION.format("policy"),
        ],
    ),
}


@pytest.mark.parametrize("name", IN_READER)
def test_planted_change_of_a_sub_agent_is_reported_without_a_snapshot(project: PlantedProject, name: str) -> None:
    case, planted, changes = IN_READER[name]
    shutil.copytree(ROOT / "cassettes" / "researcher", project.root / "cassettes" / "researcher")
    file = project.root / "specs" / "researcher.cases.yaml"
    file.write_text(RESEARCH, encoding="utf-8")
    (found,) = [each for each in read_located_cases(file) if each.case.name == case]
    assert evaluate_case(found, CompiledAgents(), accepted_snapshots).status == "passed"
    project.plant(*planted)
    verdict = evaluate_case(found, CompiledAgents(), accepted_snapshots)
    assert (verdict.status, texts(verdict)) == ("missed", changes)
