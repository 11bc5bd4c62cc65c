"""`agentrun cassette prune [PATH...]`"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.console import json_line, json_option, print_stderr, show_error
from agentrun.cli.options import ExistingPath, now_option
from agentrun.errors import AgentrunError
from agentrun.spec.problems import escape_invisible

if TYPE_CHECKING:
    from agentrun.cassette.prune import PruneStep


@click.command("prune")
@click.argument("paths", nargs=-1, type=ExistingPath(exists=True, path_type=Path))
@click.option("--yes", is_flag=True, help="Remove them. Without --yes nothing is changed.")
@now_option
@json_option
def command(paths: tuple[Path, ...], yes: bool, now: int, as_json: bool) -> int:
    """Remove cassettes without a case, interactions that no replay uses, and files that were written only in part.

    PATH is a cassette, a spec, or a folder of them. Without PATH all cassettes of the project are pruned. The command
    shows what it would remove, and removes it with --yes only. It keeps a cassette that is damaged, that was not
    recorded by agentrun, or whose case does not replay to its end.

    \b
    Examples:
      agentrun cassette prune
      agentrun cassette prune specs/support.yaml --yes
    """
    from agentrun.cassette.prune import apply_prune_step, plan_prune
    from agentrun.spec.safe_text import plural
    from agentrun.store.staged_cassettes import lock_cassette
    from agentrun.testing.suite.replay import SuiteReplays

    steps = plan_prune(paths, SuiteReplays())
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    code = changed = 0
    for step in steps:
        done = False
        if yes and step.action != "keep":
            try:
                apply_prune_step(step, at, lock_cassette)
                done, changed = True, changed + 1
            except AgentrunError as error:
                show_error(error, as_json=as_json)
                code = code or error.exit_code
        click.echo(_format_step(step, done=done, as_json=as_json))
    if not as_json:
        could = sum(step.action != "keep" for step in steps)
        advice = "nothing was changed; add --yes to remove them" if could else "there is nothing to prune"
        print_stderr(f"{plural(changed, 'file')} changed" if yes else advice)
    return code


def _format_step(step: PruneStep, *, done: bool, as_json: bool) -> str:
    if as_json:
        line = {"file": step.file.label, "action": step.action, "why": step.reason, "done": done}
        return json_line(line | ({"interactions": list(step.unused)} if step.unused else {}))
    return f"{step.action:<7}  {escape_invisible(step.file.label)}  {escape_invisible(step.reason)}"
