"""Run `agentrun` commands on hostile projects and check their exit code, output, steps and memory.

Whatever was in it, a command ends in a documented code, without a traceback, with nothing that a terminal would obey,
within a bounded number of steps and 64 MiB above what the process had before it. `tests/measured_commands.py` runs
many in one process and counts.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from agentrun.spec.problems import PROBLEM_CODES

from ..measured_commands import MIB, SCRIPT, MeasuredCommand, run
from ..projects import agent, write_project

Files = dict[str, str | bytes]

WARM = agent(
    """\
params: {p: {type: string, pattern: "^a"}}
instructions: "{{ p|upper }}"
tools: {x: {kind: python, call: "m:f"}}
policy: {default: deny, rules: [{id: r, allow: x, when: "args.a == 1 && params.p.matches('a')"}]}
"""
)


def attack(
    folder: Path, attacks: dict[str, str | Files], *args: str, script: str = SCRIPT
) -> dict[str, MeasuredCommand]:
    """Runs a command (`validate spec.yaml`) on each project; gives what came of it after a look at its cost."""
    warm, cases = folder / "warm", []
    warm.mkdir()
    write_project(warm, {"spec.yaml": WARM + "zzz: 1\n", "fine.yaml": WARM, "m.py": "def f(a: int):\n    'd'\n"})
    for number, files in enumerate(attacks.values()):
        project = folder / f"project{number}"
        project.mkdir()
        write_project(project, {"spec.yaml": agent(files)} if isinstance(files, str) else files)
        cases.append((project, args or ("validate", "spec.yaml")))
    warming = [(warm, ["validate", name]) for name in ("spec.yaml", "fine.yaml")] + [(warm, ["compile", "fine.yaml"])]
    results = dict(zip(attacks, run(cases, warming, script), strict=True))
    for name, ran in results.items():
        assert ran.memory < 64 * MIB, (name, ran.memory)
        assert "Traceback" not in ran.output, name
        assert ran.code != 70, (name, ran.output)
        visible = ran.output.replace("\n", "")
        assert visible.isprintable(), name
    return results


def codes(ran: MeasuredCommand) -> set[str]:
    """The codes of errors."""
    return set(re.findall(r"(?:^|\n)\S+  ((?:spec|package)\.\w+)  (?!warning: )", ran.output))


def assert_refused(folder: Path, attacks: dict[str, str | Files], *expected: str) -> None:
    """All attacks end in these codes, and in no others."""
    for name, ran in attack(folder, attacks).items():
        assert codes(ran) <= PROBLEM_CODES.keys()
        assert codes(ran), name
        assert codes(ran) <= set(expected), (name, codes(ran))
        assert ran.code == 2, name


def numbered(texts: Iterable[str]) -> dict[str, str | Files]:
    return {str(number): text for number, text in enumerate(texts)}
