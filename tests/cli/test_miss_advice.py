"""The `--record` command that a miss names accepts the change, and the next replay passes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agentrun.cassette.conversion import converted_text

from .shop_project import STORY, Project

SMALL_REFUNDS_RULE = "    - {id: money, allow: refund, when: 'args.amount <= 10.0'}\n"


def without_interaction(number: int) -> Callable[[Project], None]:
    """Takes an interaction off the cassette."""

    def remove(shop: Project) -> None:
        data = yaml.safe_load(converted_text(shop.cassette.read_text(encoding="utf-8"), packed=False))
        del data["interactions"][number - 1]
        shop.cassette.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")

    return remove


def change_tool_result(shop: Project) -> None:
    text = shop.cassette.read_text(encoding="utf-8")
    shop.cassette.write_text(text.replace('"state":"late"', '"state":"gone"', 1), encoding="utf-8")


CHANGES: dict[str, tuple[Callable[[Project], None], str, tuple[str, ...]]] = {
    "prompt": (lambda shop: shop.edit("prompt.md", "brief", "kind"), "new", ()),
    "reason": (lambda shop: shop.edit("shop.yaml", "reason: money", "reason: rules"), "new", ()),
    "result": (change_tool_result, "new", ()),
    "denied": (
        lambda shop: shop.edit("shop.yaml", "    - {id: money, ask: refund, reason: money}\n", SMALL_REFUNDS_RULE),
        "new",
        (),
    ),
    "first model": (without_interaction(1), "new", ()),
    "tool": (without_interaction(2), "new", ()),
    "second model": (without_interaction(4), "new", ()),
    "approval": (without_interaction(5), "new", ()),
    "last": (without_interaction(7), "new", ()),
    "answers": (lambda shop: None, "new", ("--approve", "none")),
}


ASKED_ANEW = ("prompt", "result", "denied", "last", "answers")
"""Changes after which the model's last reply is another."""


@pytest.mark.parametrize("change", CHANGES)
def test_command_named_by_a_miss_accepts_the_change(tmp_path: Path, change: str) -> None:
    shop = Project(tmp_path)
    shop.recorded()
    edit, how, args = CHANGES[change]
    edit(shop)
    missed = shop.run("--json", *args)
    (last,) = [line for line in missed.lines() if "outcome" in line]
    words = shlex.split(last["outcome"]["fault"]["fields"]["accept"])
    assert words == ["agentrun", "shop.yaml", "--case", "default", *args, "--record", how]
    with shop.provider(STORY.replace("Done.", "Accepted.")) as (_, environment):
        approve = () if args else ("--approve", "all")
        accepted = shop.run(*words[2:], *approve, "--yes", **environment)
    assert (accepted.code, "recorded: " in accepted.err) == (0, True), accepted.err
    again = shop.run(*args)
    assert (again.code, again.out) == (0, accepted.out), again.err
    assert (accepted.out == "Accepted.\n") == (change in ASKED_ANEW), "what still fits is kept"


def test_command_named_by_a_miss_has_the_attachments(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    (shop.root / "my note.txt").write_text("the lamp is broken", encoding="utf-8")
    attached = ("--attach", "my note.txt")
    shop.record(*attached)
    shop.edit("prompt.md", "brief", "kind")
    missed = shop.run(*attached)
    assert "to accept it: agentrun shop.yaml --case default --attach 'my note.txt' --record new" in missed.err
