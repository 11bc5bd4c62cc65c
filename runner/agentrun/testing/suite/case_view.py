"""The runs of a case as views for a page, with the cassette and the templates that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agentrun.canonical_json import fingerprint
from agentrun.cassette.interactions import Cassette
from agentrun.cassette.miss_context import MissContext, make_miss_context
from agentrun.cassette.parsed_interaction import ParsedCassette, parse_cassette
from agentrun.cassette.prompt_diff import PromptLine, compare_prompts, render_templates
from agentrun.core.facts import Record
from agentrun.engine.run import FinishedRun, journal_run_id
from agentrun.engine.world import iterate_packages
from agentrun.journal.family import ReadJournal, RunFamily
from agentrun.report.run_view import Prompt, PromptText, RunView, ViewSource, view_run
from agentrun.spec.source_files import display_path
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent, case_command, case_messages


def view_case(
    located: LocatedCase, agent: CompiledAgent, case_runs: CaseRuns, cassette: Cassette | None
) -> Iterator[RunView]:
    """One view for each run: a conversation has several. `cassette`: None if it is not known."""
    parsed = None if cassette is None else parse_cassette(cassette)
    file = display_path(agent.cassette_path(located), agent.spec.project.root)
    command = case_command(located, agent)
    commands = (command, f"{command} --record new", f"agentrun test {located.id} --update")
    packages = {fingerprint(each): each for each in iterate_packages(agent.file.agent)}
    for number, (run, message) in enumerate(zip(case_runs.runs, case_messages(located.case), strict=False), 1):
        source = ViewSource(
            source="live" if case_runs.is_live else file,
            case=located.case.name + (f", message {number}" if len(case_runs.runs) > 1 else ""),
            tier=run.tier,
            cassette=parsed if number == 1 else None,
            prompt=_prompt(located, agent, message, run, parsed),
            commands=commands,
        )
        yield view_run(run_family(run), packages, source)


def run_family(run: FinishedRun) -> RunFamily:
    """The journals of a run that was not stored."""
    children = {name: _read_journal(records) for name, records in run.children.items()}
    return RunFamily(_read_journal(run.journal), children)


def _read_journal(records: tuple[Record, ...]) -> ReadJournal:
    return ReadJournal(Path(journal_run_id(records)), records, has_head=False, length=len(records))


def _prompt(
    located: LocatedCase, agent: CompiledAgent, message: str | None, run: FinishedRun, cassette: ParsedCassette | None
) -> Prompt | None:
    """The instructions with the line of the template that each line comes from."""
    context = make_miss_context(
        agent.spec, agent.file, message=message, params=located.case.params, accept="", whole=False
    )
    rendered = render_templates(context.instructions, context.params)
    started = run.journal[0].fact
    now = getattr(started, "instructions", "")
    if rendered is None or [line.text for line in rendered.lines] != now.split("\n"):
        return None  # a hook or a rule changed it
    names = tuple(context.params)
    lines = tuple(_prompt_text(line, names) for line in rendered.lines)
    return Prompt(lines, tuple(_changes(now, context, cassette)))


def _prompt_text(line: PromptLine, names: tuple[str, ...]) -> PromptText:
    file, number = line.place(0)
    if file is None or line.template is None or line.line is None:
        return PromptText(line.text)
    return PromptText(line.text, f"{file}:{number}", tuple(_params_used(line, names)))


def _params_used(line: PromptLine, names: tuple[str, ...]) -> Iterator[str]:
    """The params in the expressions of the template lines that this line comes from."""
    assert line.template is not None
    assert line.line is not None
    if line.line.files:
        return  # the source of an included file is not at hand
    source = line.template.source.split("\n")
    used = {number for _, number in line.line.parts}
    expressions = " ".join(
        found for number in used for found in re.findall(r"\{\{.*?\}\}", source[min(number, len(source)) - 1])
    )
    for name in names:
        if re.search(rf"(?<![\w.]){re.escape(name)}\b", expressions):
            yield name


def _changes(now: str, context: MissContext, cassette: ParsedCassette | None) -> Iterator[str]:
    """What the first recorded request has instead."""
    requests = () if cassette is None else cassette.interactions
    first = next((each.exchange.request for each in requests if each.exchange is not None), None)
    if first is not None and cassette is not None:
        for difference in compare_prompts("instructions", first.instructions, now, cassette.metadata, context):
            yield difference.sentence()
