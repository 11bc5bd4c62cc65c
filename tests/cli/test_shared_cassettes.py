"""One cassette that several cases replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentrun.cassette.file import load_cassette
from agentrun.cli.group import run_command

from .desk_project import rewrite
from .suite_project import ANOTHER, CASES, CASSETTE, DEFAULT_CASE, HEAD, Suite

SHORTER = "  - {name: shorter, cassette: default, faults: [{at: 'tool:lookup_order', inject: {fatal: broken}}]}\n"
ENDS = ", assert: [{type: outcome, value: tool.fatal}]}\n"


def run(suite: Suite, *args: str) -> tuple[int, str, str]:
    suite._capsys.readouterr()
    code = run_command(list(args))
    out, err = suite._capsys.readouterr()
    return code, out, err


def add_unplayed_interaction(root: Path) -> None:
    """The last interaction stands on the cassette twice: no case plays the second."""
    rewrite(root / CASSETTE, lambda cassette: [*cassette, cassette[-1]])


def test_ls_lists_all_cases_of_a_cassette(suite: Suite) -> None:
    suite.write(ANOTHER, DEFAULT_CASE)
    row = json.loads(run(suite, "cassette", "ls", "--json")[1])
    assert (row["case"], row["cases"]) == ("default", ["default", "another"])
    suite.write(DEFAULT_CASE)
    assert "cases" not in json.loads(run(suite, "cassette", "ls", "--json")[1])


def test_interactions_played_by_any_case_are_not_unused(suite: Suite) -> None:
    """The one that ends early is the first that plays it."""
    suite.write(SHORTER.replace("}\n", ENDS), DEFAULT_CASE)
    assert suite.test().code == 0
    code, out, _ = run(suite, "cassette", "audit", "--fail-on", "unused,miss,orphan")
    assert (code, out) == (0, "")
    assert run(suite, "cassette", "prune")[1] == ""


def test_interactions_played_by_no_case_are_unused(suite: Suite) -> None:
    suite.write(ANOTHER, DEFAULT_CASE)
    add_unplayed_interaction(suite.root)
    code, out, _ = run(suite, "cassette", "audit", "--fail-on", "unused")
    assert code == 1
    assert "its case does not play 1 of 8 interactions" in out
    code, out, _ = run(suite, "cassette", "prune", "--yes")
    assert "that its cases do not play: 8" in out
    assert len(load_cassette(suite.root / CASSETTE).interactions) == 7
    assert suite.test().code == 0


def test_the_case_that_misses_is_named(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER.replace("another", "another, input: Hello"))
    code, out, _ = run(suite, "cassette", "audit")
    assert code == 1
    (line,) = [each for each in out.splitlines() if "  miss  " in each]
    assert "case another no longer replays" in line
    assert "its replay fails with cassette.miss" in run(suite, "cassette", "prune")[1]


def test_only_the_case_with_the_name_of_the_cassette_records_it(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    code, _, err = run(suite, "specs/desk.yaml", "--case", "another", "--record", "all", "--yes")
    assert code == 2
    assert "case 'another' reuses the cassette of 'default'" in err
    assert "record: " not in err, "it is refused before a recording is announced"


def test_case_that_differs_is_advised_to_use_its_own_cassette(suite: Suite) -> None:
    """Making the recording again changes nothing, as long as the spec is the recorded one."""
    suite.write(DEFAULT_CASE, SHORTER.replace("fatal", "error"))
    assert suite.test().code == 0, "after a fault recorded replies are played on, unless that is not wanted"
    ran = suite.test("--require-tier", "exact")
    assert ran.code == 3
    own = "remove `cassette: default` from the case, then agentrun test specs/desk.cases.yaml::shorter --record new"
    assert f"to accept it: {own}" in ran.out
    assert ran.out.count(own) == 1
    assert "record them" not in ran.out
    spec = suite.root / "specs" / "desk.yaml"
    spec.write_text(
        spec.read_text(encoding="utf-8").replace("instructions: ", "instructions: Well, "), encoding="utf-8"
    )
    again = suite.test("--require-tier", "exact", "-v").out
    assert "--case default --record" in again
    assert "remove" not in again


def test_unused_interactions_fail_only_the_case_of_the_cassette_name(suite: Suite) -> None:
    suite.write(DEFAULT_CASE, ANOTHER)
    add_unplayed_interaction(suite.root)
    assert suite.test("--json").statuses() == {"default": "missed", "another": "passed"}


@pytest.mark.parametrize(
    ("defaults", "added"),
    [
        ("{tags: [nightly], assert: [{type: turns, max: 9}], approvals: {refund: approved}}", True),
        ("{stubs: {refund: {result: x}}}", False),
        ("{clock: {step: 1s}}", False),
    ],
)
def test_case_is_added_only_if_the_defaults_do_not_change_it(suite: Suite, defaults: str, added: bool) -> None:
    from agentrun.cli.record import add_case
    from agentrun.compiler.spec_reader import read_spec
    from agentrun.spec.v1.cases import Case

    suite.write(DEFAULT_CASE, head=HEAD.replace("cases:", f"defaults: {defaults}\ncases:"))
    before = (suite.root / CASES).read_text(encoding="utf-8")
    spec = read_spec(suite.root / "specs/desk.yaml").spec
    assert spec is not None
    advice = add_case(spec.project, spec.path, Case(name="fresh", input="Hello"))
    after = (suite.root / CASES).read_text(encoding="utf-8")
    if added:
        assert advice is None
        assert after == before + "  - name: fresh\n    input: Hello\n"
    else:
        assert "the defaults in" in (advice or "")
        assert after == before
