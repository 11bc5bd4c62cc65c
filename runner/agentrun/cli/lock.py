"""`agentrun lock SPEC`"""

from __future__ import annotations

from pathlib import Path

import click

from agentrun.cli.options import spec_argument
from agentrun.cli.show import say


@click.command("lock")
@spec_argument
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if the lock is missing or out of date.")
def command(spec: Path, check: bool) -> int:
    """Pin what lives outside SPEC, in SPEC's .lock file beside it.

    Pinned are the price and the context window of each route, those of profiles included, from the data that comes
    with genai-prices; nothing is fetched. Commit the lock: the same spec and lock give the same package everywhere.

    \b
    Examples:
      agentrun lock specs/support.yaml
      agentrun lock specs/support.yaml --check
    """
    from agentrun.cli.write import write_file
    from agentrun.compiler.lock import lock_path, lock_text, make_lock, read_lock
    from agentrun.compiler.resolve import read_spec
    from agentrun.errors import SpecError
    from agentrun.spec.problems import DocumentError, arrange

    read = read_spec(spec)
    overlaid = [read_spec(spec, profile) for profile in read.profiles]
    agents = [one.spec.agent for one in (read, *overlaid) if one.spec is not None]
    if len(agents) < 1 + len(overlaid):
        raise SpecError(arrange(problem for one in (read, *overlaid) for problem in one.problems))
    wanted, path = make_lock(*agents), lock_path(spec)
    unknown = [route for route, row in wanted.routes.items() if row.price is None]
    for route in unknown:
        say(f"no price is known for {route}: give it a `price:` in the spec if it has one")
    if not check:
        write_file(path, lock_text(wanted).encode(), replaces=b'{\n  "agentrun_lock"')
        say(f"{len(wanted.routes)} route{'' if len(wanted.routes) == 1 else 's'} pinned in {path}")
        return 0
    try:
        held = read_lock(spec)
    except DocumentError as error:
        raise SpecError(error.problems) from None
    if held is None or held.routes != wanted.routes:
        state = "missing" if held is None else "out of date"
        say(f"{path} is {state}: run `agentrun lock {spec}`")
        return 2
    say(f"{path} is up to date")
    return 0
