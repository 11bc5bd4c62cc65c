"""`agentrun verify RUN|FILE`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentrun.cli.console import json_line, json_option, safe_text
from agentrun.cli.run_files import exit_code, journal_argument, read_run, show_run_error
from agentrun.spec.safe_text import plural

if TYPE_CHECKING:
    from agentrun.journal.family import ReadJournal


@click.command("verify")
@journal_argument
@json_option
def command(run: str, as_json: bool) -> int:
    """Verify the journals of a run and of its sub-agents: every record, its number and its hash.

    A changed, removed, added or moved record is found. Records that were cut off at the end are found if the run is
    finished, because the last record is missing then, or if there is a head file next to the journal, as in the store.

    \b
    --json prints one object per journal:
      {"run", "file", "records", "finished", "head"}         or
      {"run", "file", "error": {"code", "message", "fields", "exit", …}}

    Exit codes: 0 the journals are intact, 7 one is damaged or cut off.

    \b
    Examples:
      agentrun verify 5f0c
      agentrun verify run.jsonl
      agentrun verify run.jsonl --json | jq .records
    """
    from agentrun.spec.source_files import display_path

    family, _ = read_run(run, keep_all=False)
    for journal in family.journals:
        name = display_path(journal.path)
        if journal.error is not None:
            show_run_error(journal.run, journal.error, as_json=as_json, file=name)
        elif as_json:
            line = {"run": journal.run, "file": name, "records": journal.length}
            click.echo(json_line(line | {"finished": journal.is_finished, "head": journal.has_head}))
        else:
            click.echo(safe_text(f"{name} is intact: {_verdict(journal)}"))
    return exit_code(family)


def _verdict(journal: ReadJournal) -> str:
    text = plural(journal.length, "record")
    if journal.is_finished:
        return f"{text}, the run is finished"
    if journal.has_head:
        return f"{text}, the run is not finished"
    return f"{text}; the run is not finished, and without a head file later records may be missing"
