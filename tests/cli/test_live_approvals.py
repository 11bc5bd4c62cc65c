"""In live runs and with live tools, neither a cases file nor a cassette approves a call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .shop_project import STORY, Project
from .terminal_user import at_terminal

CASES = 'agentrun: "1"\ncases:\n  - {{name: default, {0}}}\n'
APPROVED_BY_CASE = "approvals: {refund: approved}"
INJECTED_APPROVAL = "faults: [{at: 'approval:refund', inject: {answer: approved}}]"
ONCE = STORY.replace('    faults: [{status: 429, headers: {retry-after: "0"}}]\n', "")
REFUND = "refund 1042 20"


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    shop = Project(tmp_path)
    shop.recorded(story=ONCE)
    shop.trace.unlink()
    return shop


def write_case(shop: Project, text: str) -> None:
    (shop.root / "shop.cases.yaml").write_text(CASES.format(text), encoding="utf-8")


@pytest.mark.parametrize("mode", [("--mode", "live"), ("--live-tools",)])
@pytest.mark.parametrize(
    "case", [APPROVED_BY_CASE, INJECTED_APPROVAL, "tags: [none]"], ids=["approvals", "fault", "cassette"]
)
def test_live_call_is_not_approved_without_terminal_despite_approvals_in_files(
    shop: Project, mode: tuple[str, ...], case: str
) -> None:
    write_case(shop, case)
    with shop.provider(ONCE) as (_, environment):
        done = shop.run("--case", "default", *mode, **environment)
    assert shop.traces() == ["look 1042"], done.err
    if done.code == 8:
        assert "suspended: the run waits for an approval of refund (c2.0)" in done.err
    else:
        assert re.search("refund needs approval, but there is no terminal", done.err)
    assert "--record" not in done.err


def test_terminal_asks_despite_approvals_of_the_case(shop: Project) -> None:
    write_case(shop, APPROVED_BY_CASE)
    command = ("--case", "default", "--mode", "live", "--approve", "ask")
    with shop.provider(ONCE) as (_, environment), at_terminal(shop, environment, *command, rows=60) as person:
        person.until("Go ahead?")
        assert shop.traces() == ["look 1042"]
        person.type("n\n")
        person.end()
    assert shop.traces() == ["look 1042"]


def test_approve_option_overrides_the_approvals_of_the_case(shop: Project) -> None:
    write_case(shop, "approvals: {refund: denied}")
    (shop.root / "answers.yaml").write_text("refund: approved\n", encoding="utf-8")
    with shop.provider(ONCE) as (_, environment):
        for mode in (("--mode", "live"), ("--live-tools",)):
            done = shop.run("--case", "default", *mode, "--approve", "answers.yaml", **environment)
            assert done.code == 0, done.err
    assert shop.traces() == ["look 1042", REFUND] * 2


def test_approvals_of_the_case_are_used_with_recorded_tools(shop: Project) -> None:
    write_case(shop, "approvals: {refund: denied}")
    assert shop.run("--case", "default").code == 3, "the recording has another answer"
    with shop.provider(ONCE) as (_, environment):
        done = shop.run("--case", "default", "--live-model", "--journal", "run.jsonl", **environment)
    assert done.code == 0, done.err
    assert "refund: denied by case default" in done.err
    assert shop.traces() == []


@pytest.mark.parametrize("mode", [(), ("--live-model",)])
def test_miss_caused_by_approve_names_the_changed_approval(shop: Project, mode: tuple[str, ...]) -> None:
    shop.record("--record", "all", "--approve", "none", story=ONCE)
    with shop.provider(ONCE) as (_, environment):
        done = shop.run("--case", "default", *mode, "--approve", "all", **environment)
    assert done.code == 3
    assert (
        "likely cause: the approval of refund is now approved (by --approve all), but the cassette has denied"
        in done.err
    )


def test_case_with_unavailable_approval_is_recorded_without_asking(shop: Project) -> None:
    """Also at a terminal, where somebody could be asked."""
    write_case(shop, "approvals: {refund: unavailable}")
    command = ("--case", "default", "--record", "all", "--yes")
    with shop.provider(ONCE) as (_, environment):
        done = shop.run(*command, **environment)
        assert done.code == 0, done.err
        assert "recorded: " in done.err
        assert "refund needs approval" not in done.err, "it is meant"
        with at_terminal(shop, environment, *command, rows=60) as person:
            ended, shown = person.end()
    assert (ended, "Go ahead?" in shown, "Record?" in shown) == (0, False, False), shown
    assert shop.traces() == ["look 1042"] * 2
    assert shop.run("--case", "default").code == 0


def test_recording_without_approver_suggests_unavailable_in_the_case(shop: Project) -> None:
    with shop.provider(ONCE) as (_, environment):
        done = shop.run("--record", "all", "--yes", **environment)
    assert done.code == 4
    assert "write in the case: `approvals: {refund: unavailable}`" in done.err
