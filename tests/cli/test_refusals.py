"""A run that is refused prints the refusal and nothing else: no first line, no announcement, no warning of the spec."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentrun.journal.records import JOURNAL_PREFIX
from agentrun.spec.project import find_project
from agentrun.store.staged_cassettes import cassette_lock_path

from .shop_project import KEY, Project
from .terminal_user import at_terminal

LIVE = ("--mode", "live")
RECORD = ("--mode", "record", "--yes")
REPLAY = ("--mode", "replay")
NEW = ("--record", "new", "--yes")
LIVE_TOOLS = ("--live-tools",)
SESSION = ("--session", "ada", "--create")
JOURNAL = ("--journal", "nowhere/run.jsonl")
WARNING = ("budgets: {turns: 8, tokens: 20k, time: 5m}\n", "")
"""A spec without budgets has a warning."""
USAGE_ERROR = r"Usage: .*\nTry .*\n\nError: .*\n"


@contextmanager
def ready(_: Project) -> Iterator[None]:
    yield


@contextmanager
def denied_start(shop: Project) -> Iterator[None]:
    shop.edit("shop.yaml", "  rules:\n", '  rules:\n    - {id: never, on: run_start, deny: "*", reason: closed}\n')
    yield


@contextmanager
def damaged(shop: Project) -> Iterator[None]:
    shop.cassette.write_text("interactions: [")
    yield


@contextmanager
def without_program(shop: Project) -> Iterator[None]:
    shop.edit("shop.yaml", '{kind: python, call: "desk:look", effect: read}', "{kind: shell, argv: [no-such-look]}")
    yield


@contextmanager
def locked_cassette(shop: Project) -> Iterator[None]:
    with locked(cassette_lock_path(find_project(shop.spec), shop.cassette)):
        yield


@contextmanager
def locked_session(shop: Project) -> Iterator[None]:
    with locked(shop.root / ".agentrun/sessions/ada/lock"):
        yield


@contextmanager
def unwritable_cassette(shop: Project) -> Iterator[None]:
    """The folder of the cassettes is a link, and links are not followed."""
    (shop.root / "cassettes").rename(shop.root / "elsewhere")
    (shop.root / "cassettes").symlink_to("elsewhere")
    yield


@contextmanager
def other_file(shop: Project) -> Iterator[None]:
    (shop.root / "notes.txt").write_text("mine\n")
    yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


REFUSALS: dict[str, tuple[Callable[..., object], tuple[str, ...], str]] = {
    "no key, live": (ready, (*LIVE, "-q"), "host.missing"),
    "no key, auto": (ready, ("Something else",), "host.missing"),
    "no key, record": (ready, RECORD, "host.missing"),
    "no key, session": (ready, SESSION, "host.missing"),
    "no consent": (ready, ("--mode", "record"), "usage"),
    "no consent, new": (ready, ("--record", "new"), "usage"),
    "empty, live": (ready, ("", *LIVE), "input.rejected"),
    "empty, record": (ready, ("", "--case", "blank", *RECORD), "input.rejected"),
    "denied, live": (denied_start, LIVE, "policy.denied"),
    "denied, record": (denied_start, RECORD, "policy.denied"),
    "denied, replay": (denied_start, REPLAY, "policy.denied"),
    "denied, live tools": (denied_start, LIVE_TOOLS, "policy.denied"),
    "damaged, replay": (damaged, REPLAY, "cassette.damaged"),
    "damaged, live tools": (damaged, LIVE_TOOLS, "cassette.damaged"),
    "damaged, new": (damaged, NEW, "cassette.damaged"),
    "no folder for the journal, live": (ready, (*LIVE, *JOURNAL), "storage.failed"),
    "no folder for the journal, record": (ready, (*RECORD, *JOURNAL), "storage.failed"),
    "no folder for the journal, replay": (ready, (*REPLAY, *JOURNAL), "storage.failed"),
    "no folder for the journal, session": (ready, (*SESSION, *JOURNAL), "storage.failed"),
    "journal over another file, live": (other_file, (*LIVE, "--journal", "notes.txt"), "usage"),
    "journal over another file, replay": (other_file, (*REPLAY, "--journal", "notes.txt"), "usage"),
    "no program, live": (without_program, LIVE, "host.missing"),
    "no program, record": (without_program, RECORD, "host.missing"),
    "locked cassette": (locked_cassette, RECORD, "storage.failed"),
    "unwritable cassette": (unwritable_cassette, RECORD, "storage.failed"),
    "busy session": (locked_session, SESSION, "session.busy"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_run_prints_nothing_but_the_refusal(tmp_path: Path, name: str) -> None:
    prepare, arguments, code = REFUSALS[name]
    shop = Project(tmp_path)
    shop.edit("shop.yaml", *WARNING)
    shop.recorded()
    key = {} if name.startswith("no key") else {"OPENAI_API_KEY": KEY}
    with prepare(shop):  # type: ignore[attr-defined]  # a context manager
        text, data = shop.run(*arguments, **key), shop.run(*arguments, "--json", **key)
        assert text.out == ""
        pattern = USAGE_ERROR if code == "usage" else rf"{re.escape(code)}: .*\n(  → .*\n)?"
        assert re.fullmatch(pattern, text.err), text.err
        has_run = code != "usage" and (not name.endswith("replay") or name.startswith("denied"))
        run = ["run"] * has_run  # the id of a replay is known when its cassette is read
        assert [[*line] for line in data.lines()] == [[*run, "error"]]
        assert (data.err, data.lines()[0]["error"]["code"], data.code) == ("", code, text.code)


def test_warnings_and_the_first_line_are_printed_when_nothing_refuses_the_run(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.edit("shop.yaml", *WARNING)
    shop.recorded()
    done = shop.run()
    lines = done.err.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("replay: "))
    assert any("spec.no_budget" in line for line in lines[:first]), done.err


@pytest.mark.parametrize("mode", [LIVE, RECORD], ids=["live", "record"])
def test_a_refused_run_leaves_journals_as_they_were(tmp_path: Path, mode: tuple[str, ...]) -> None:
    shop = Project(tmp_path)
    for old in ("run.jsonl", "run.c1.0.jsonl"):
        (shop.root / old).write_bytes(JOURNAL_PREFIX + b"old")
    for path in ("run.jsonl", "new.jsonl"):
        assert shop.run(*mode, "--journal", path).code == 2
    assert sorted(path.name for path in shop.root.glob("*.jsonl")) == ["run.c1.0.jsonl", "run.jsonl"]
    assert (shop.root / "run.jsonl").read_bytes() == JOURNAL_PREFIX + b"old"


def test_at_a_terminal_a_refused_run_prints_nothing_but_the_refusal(tmp_path: Path) -> None:
    shop = Project(tmp_path)
    with at_terminal(shop, {}, "--mode", "record") as person:
        code, shown = person.end()
    assert code == 2
    assert shown.startswith("host.missing: OPENAI_API_KEY is not set"), shown


def test_a_journal_that_is_a_pipe_without_a_reader_is_not_opened_early(tmp_path: Path) -> None:
    """To open it for a check would wait for a reader."""
    shop = Project(tmp_path)
    os.mkfifo(shop.root / "pipe")
    done = shop.run("--journal", "pipe")
    assert (done.code, done.err.startswith("host.missing: ")) == (2, True)
