"""A project with one cassette, recorded against a scripted provider, and functions that change the cassette."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentrun.cassette.conversion import converted_text
from agentrun.cassette.file import load_cassette
from agentrun.cassette.interactions import Interaction
from agentrun.cassette.writer import dump_cassette
from agentrun.testing.provider import ScriptedProvider
from agentrun.wire import HttpCall, HttpReply

from .command import CommandResult, agentrun

NOW = "2026-02-10T12:00:00Z"
RECORDED_AT = "2026-01-31T12:00:00Z"
CASSETTE = "cassettes/desk/default.yaml"

FILES = {
    "pyproject.toml": '[tool.agentrun]\nimport_roots = ["python"]\n',
    "specs/desk.yaml": """\
agentrun: "1"
name: desk
model: {provider: openai, name: gpt-4.1-mini, temperature: 0, stream: true}
instructions: Look an order up before you answer.
input: Please refund 20 of order 1042.
tools:
  lookup_order: {kind: python, call: "shop:lookup_order", effect: read}
  refund: {kind: python, call: "shop:refund"}
policy:
  default: deny
  rules:
    - {id: reads, allow: lookup_order}
    - {id: refunds, ask: refund, reason: A person signs off.}
budgets: {turns: 8, tokens: 20k}
retry: {first_delay: 1ms}
""",
    "specs/desk.cases.yaml": 'agentrun: "1"\ncases:\n  - name: default\n',
    "python/shop.py": '''\
"""A shop."""


def lookup_order(id: str) -> dict[str, object]:
    """Finds an order."""
    return {"id": id, "total": 39.9}


def refund(order_id: str, amount: float) -> str:
    """Pays an amount of an order back."""
    return f"{amount:.2f} of order {order_id} is paid back"
''',
}
TURNS = """\
agentrun: "1"
turns:
  - text: I look it up.
    calls: [{tool: lookup_order, args: {id: "1042"}}]
  - calls: [{tool: refund, args: {order_id: "1042", amount: 20.5}}]
    faults: [{status: 429, headers: {retry-after: "0"}}]
  - text: Done, 20.50 is paid back.
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def record(folder: Path) -> None:
    """The project, with its recording. What differs from one recording to the next is made the same."""
    write(folder, FILES)
    with ScriptedProvider(TURNS) as server:
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-desk-1234567890abcdef"}
        done = agentrun(
            "specs/desk.yaml", "--mode", "record", "--yes", "--approve", "all", cwd=folder, stdin=b"", **env
        )
    assert done.code == 0, done.err
    shutil.rmtree(folder / "python" / "__pycache__", ignore_errors=True)
    rewrite(
        folder / CASSETTE,
        lambda interactions: (_timed(n, each) for n, each in enumerate(interactions)),
        recorded_at=RECORDED_AT,
    )


def _timed(number: int, interaction: Interaction) -> Interaction:
    headers = tuple(field for field in interaction.reply.headers if field[0] != "date")
    return replace(
        interaction, start=number * 100, end=number * 100 + 40, reply=replace(interaction.reply, headers=headers)
    )


def rewrite(path: Path, change: Callable[[tuple[Interaction, ...]], Iterable[Interaction]], **metadata: Any) -> None:
    """Write a recording with other interactions, and other metadata (None: without it)."""
    recorded_cassette = load_cassette(path)
    about = {
        key: value for key, value in (_plain_data(recorded_cassette.metadata) | metadata).items() if value is not None
    }
    path.write_text(dump_cassette(change(recorded_cassette.interactions), about), encoding="utf-8")


def replace_in_replies(path: Path, old: str, new: str) -> None:
    """Put something else into the replies of a recording."""

    def changed(interaction: Interaction) -> Interaction:
        body = interaction.reply.body.replace(old.encode(), new.encode())
        return replace(interaction, reply=replace(interaction.reply, body=body), chunks=())

    before = path.read_bytes()
    rewrite(path, lambda interactions: map(changed, interactions))
    assert path.read_bytes() != before


def unplayed_interaction(number: int = 0) -> Interaction:
    """An interaction that no case plays."""
    call = HttpCall("CALL", "tool://nothing", (("content-type", "application/json"),), f'{{"n": {number}}}'.encode())
    return Interaction(call, HttpReply(200, (("content-type", "text/plain"),), b"gone"), start=1, end=2)


def add_unused(path: Path) -> None:
    rewrite(
        path,
        lambda interactions: [
            unplayed_interaction(),
            *interactions[:3],
            interactions[1],
            *interactions[3:],
        ],
    )


def without_lines(interactions: tuple[Interaction, ...]) -> list[Interaction]:
    """Interactions without their lines, and with whole requests."""
    return [replace(each, line=0, request=each.call) for each in interactions]


def copy_cassette(folder: Path, name: str, **metadata: Any) -> Path:
    """The recording once more, under another name."""
    path = (folder / CASSETTE).with_name(f"{name}.yaml")
    shutil.copy(folder / CASSETTE, path)
    rewrite(path, lambda interactions: interactions, **metadata)
    return path


def make_foreign(path: Path) -> None:
    """As if something else had recorded it."""
    path.write_text(dump_cassette(load_cassette(path).interactions, {}), encoding="utf-8")


def add_cases(folder: Path, *cases: str) -> None:
    with (folder / "specs/desk.cases.yaml").open("a", encoding="utf-8") as file:
        file.writelines(f"  - {case}\n" for case in cases)


def _plain_data(value: Any) -> Any:
    return {key: _plain_data(item) for key, item in value.items()} if isinstance(value, dict) else value


def edit(path: Path, old: str, new: str) -> None:
    """Edit a file. A cassette is expanded first, as a person would do it."""
    text = path.read_text(encoding="utf-8")
    text = converted_text(text, packed=False) if "\ninteractions:" in text else text
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def cassette(folder: Path, *args: str | Path, **env: str) -> CommandResult:
    return agentrun("cassette", *args, cwd=folder, stdin=b"", **{"AGENTRUN_NOW": NOW, **env})
