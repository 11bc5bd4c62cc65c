"""`agentrun diff A B`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.cli.options import SpecFile, profile_option
from agentrun.cli.show import colored, json_option, say

if TYPE_CHECKING:
    from agentrun.compiler.fingerprint import PackageFile


@click.command("diff")
@click.argument("a", type=SpecFile)
@click.argument("b", type=SpecFile)
@profile_option
@json_option
def command(a: Path, b: Path, profile: str | None, as_json: bool) -> int:
    """Say in words how two specs or packages differ. Exit code 0 if they behave the same, 1 if not.

    A and B are spec files or package files (.json), in any mix. Comments, key order and file layout never count.

    \b
    Examples:
      agentrun diff specs/support.yaml support.package.json
      agentrun diff old.yaml new.yaml --json
    """
    from agentrun.compiler.difference import differences
    from agentrun.spec.problems import visible

    found = differences(_package(a, profile), _package(b, profile))
    for difference in found:
        if as_json:
            fields = ("section", "path", "change", "before", "after")
            click.echo(json.dumps({name: getattr(difference, name) for name in fields}, ensure_ascii=False))
            continue
        first, *more = [visible(line) for line in difference.words().split("\n")]
        click.secho(first, bold=True, color=colored(sys.stdout))
        for line in more:
            click.secho(line, fg={"+": "green", "-": "red"}.get(line[4:5]), color=colored(sys.stdout))
    if not as_json:
        count = len(found)
        say(f"{count} difference{'' if count == 1 else 's'}" if found else "no differences: the fingerprints are equal")
    return 1 if found else 0


def _package(path: Path, profile: str | None) -> PackageFile:
    from agentrun.compiler.compile import compiled_or_raise
    from agentrun.compiler.fingerprint import read_package

    return read_package(path) if path.suffix == ".json" else compiled_or_raise(path, profile)[1]
