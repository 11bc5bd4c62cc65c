"""The view of a run tells the story of the terminal, and explains each ruling with the rules that made it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET, to_builtins

from agentrun.canonical_json import fingerprint
from agentrun.core.package import RULINGS
from agentrun.engine.world import iterate_packages
from agentrun.report.run_story import render_story
from agentrun.report.run_view import RunView
from agentrun.testing.suite.case_view import run_family, view_case
from agentrun.testing.suite.discovery import LocatedCase, find_case_files, read_located_cases
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent, CompiledAgents, replay_case

ROOT = Path(__file__).parents[2]
CASES = [each for file in find_case_files([ROOT / "specs"]) for each in read_located_cases(file)]
REPLAYED = [each for each in CASES if each.case.skip is UNSET]
AGENTS = CompiledAgents()


def replay(located: LocatedCase) -> tuple[CompiledAgent, CaseRuns]:
    agent = AGENTS.for_case(located)
    return agent, replay_case(located, agent)


def view(name: str) -> list[RunView]:
    located = next(each for each in REPLAYED if each.id.endswith(name))
    agent, runs = replay(located)
    return list(view_case(located, agent, runs, agent.load_cassette(located)))


@pytest.mark.parametrize("located", REPLAYED, ids=[f"{each.spec.stem}-{each.case.name}" for each in REPLAYED])
def test_page_and_terminal_tell_the_same_story(located: LocatedCase) -> None:
    agent, runs = replay(located)
    packages = {fingerprint(each): each for each in iterate_packages(agent.file.agent)}
    shown = view_case(located, agent, runs, agent.load_cassette(located))
    for run, page in zip(runs.runs, shown, strict=True):
        terminal = [(line.text, line.tone, line.indent) for line in render_story(run_family(run), packages)]
        lines = [line for entry in page.entries for line in entry.lines]
        assert [*page.head, *lines, *page.end] == terminal
        places = [(entry.run, entry.seq) for entry in page.entries]
        assert len(places) == len(set(places)) == sum(part.records for part in page.runs)


def test_every_ruling_of_the_shipped_cases_is_explained_by_its_rules() -> None:
    explained = 0
    for located in REPLAYED:
        agent, runs = replay(located)
        for page in view_case(located, agent, runs, None):
            for entry in (each for each in page.entries if each.kind == "ruled"):
                matched = [rule for rule in entry.rules if rule.matched]
                strictest = max((rule.ruling for rule in matched), key=RULINGS.index, default=entry.default)
                assert strictest == entry.fact["ruling"]
                assert sorted(rule.id for rule in entry.rules if rule.decisive) == sorted(entry.fact["rules"])
                explained += 1
    assert explained > 20


def test_values_of_a_condition_are_shown() -> None:
    (page,) = view("support.cases.yaml::approval")
    ruled = [entry for entry in page.entries if entry.kind == "ruled" and entry.fact["ruling"] == "ask"]
    rules = {rule.id: rule for rule in ruled[0].rules}
    assert rules["big-refunds"].values == (("args.amount", "120"),)
    assert rules["one-refund"].values == (("calls.refund", "absent"),)
    assert (rules["big-refunds"].decisive, rules["small-refunds"].matched) == (True, False)


def test_prompt_names_the_line_of_its_template() -> None:
    (page,) = view("support.cases.yaml::default")
    assert page.prompt is not None
    assert page.prompt.lines[0].place == "specs/prompts/support.md.j2:1"
    assert page.prompt.lines[0].params == ("order_id",)
    assert page.prompt.changes == ()


def test_each_request_has_its_interaction_and_shows_only_what_is_new() -> None:
    (page,) = view("support.cases.yaml::default")
    asked = [entry for entry in page.entries if entry.kind == "model_asked"]
    numbers = [page.exchanges[entry.exchange].number for entry in asked if entry.exchange is not None]
    assert numbers == [1, 3, 5, 7]
    second = page.exchanges[2]
    assert (second.same_as, second.kept) == (1, 1)
    assert not any("You help customers" in line for line in second.request)
    assert any("You help customers" in line for line in page.exchanges[0].request)


def test_bars_are_inside_the_run_and_budgets_below_their_limits() -> None:
    (page,) = view("support.cases.yaml::retry")
    assert {bar.kind for bar in page.bars} >= {"model", "tool", "retry"}
    last = max(entry.at for entry in page.entries)
    assert all(0 <= bar.start <= bar.end <= last for bar in page.bars)
    assert all(bar.used <= bar.limit for bar in page.budgets if bar.limit is not None)


def test_sub_agents_are_nested_where_they_started() -> None:
    page = next(page for page in view("researcher.cases.yaml::default") if len(page.runs) > 1)
    runs = [entry.run for entry in page.entries]
    first = runs.index(1)
    assert page.entries[first - 1].kind == "child_started"
    assert page.runs[1].depth == 1
    assert to_builtins(page)["runs"][0]["depth"] == 0
