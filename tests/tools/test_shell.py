"""Shell tools, with their arguments, environment, output and end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.facts import ToolFinished
from agentrun.core.fault import Fault
from agentrun.core.messages import text_of
from agentrun.core.package_tools import ShellTool
from agentrun.engine.event_loop import SystemClock
from agentrun.engine.tool_runner import run_tool
from agentrun.errors import HostError
from agentrun.secret import Secret
from agentrun.tools import shell
from agentrun.tools.shell import CommandRefused, ShellTools, build_argv, find_programs
from agentrun.tools.supervisor_client import BoundedOutput

from ..engine.memory_worlds import COMMON, Place
from .hostile_commands import Resources, has_no_new_resources, held_resources, remaining_processes, script, token

SHOW = [sys.executable, "-c", "import sys; [print(ascii(each)) for each in sys.argv[1:]]"]
"""Prints its arguments, each on a line."""
ENVIRONMENT = {"TOKEN": "correct horse battery", "SHORT": "x", "PLAIN": "a${TOKEN}b"}


def lookup(name: str) -> Secret:
    if name not in ENVIRONMENT:
        raise HostError("host.missing", f"{name} is not set", fields={"name": name})
    return Secret(ENVIRONMENT[name])


def tool(*argv: str, **more: Any) -> ShellTool:
    fixed = {each: value for each, value in COMMON.items() if each != "kind"}
    made: dict[str, Any] = {
        **fixed,
        "effect": "at_most_once",
        "args": {"type": "object"},
        "actions": {},
        "argv": argv,
        "env": {},
        "cwd": ".",
        "stdin": None,
        "exits": (0,),
        "dash_args": False,
        "grace": 200,
        "timeout": 20_000,
    }
    return ShellTool(**{**made, **more})


def call(each: ShellTool, params: dict[str, Any] | None = None, **args: Any) -> RunTool:
    return RunTool("c1.0", "look", each, args, "k", 2000, 50_000, params or {})


def run_command(root: Path, each: ShellTool, params: dict[str, Any] | None = None, **args: Any) -> ToolReturn:
    tools = ShellTools(root, find_programs([each.argv[0]], root), lookup)
    return asyncio.run(asyncio.wait_for(tools.run(call(each, params, **args)), 30))


def text(root: Path, each: ShellTool, **args: Any) -> str:
    returned = run_command(root, each, **args)
    assert returned.fault is None, returned
    return text_of(returned.parts)


def failure(root: Path, each: ShellTool, **args: Any) -> Fault:
    returned = run_command(root, each, **args)
    assert returned.fault is not None, returned
    assert (returned.fault.code, returned.fault.fields["tool"]) == ("tool.execution", "look")
    return returned.fault


# --- arguments ----------------------------------------------------------------------------------------------

SOURCES = ["{{ args.x }}", "-n{{ args.x }}", "--name={{ args.x }}", "a {{ args.x }} b"]


@pytest.mark.parametrize("source", SOURCES)
@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30))
def test_argument_stays_one_element_of_argv(source: str, value: str) -> None:
    try:
        found = build_argv(tool("x", "before", source, "after"), {"args": {"x": value}})
    except CommandRefused:
        assert source == "{{ args.x }}"
        assert value.startswith("-")
    else:
        assert found == ["x", "before", source.replace("{{ args.x }}", value), "after"]


def test_shell_syntax_in_an_argument_is_not_executed(tmp_path: Path) -> None:
    hostile = "a; touch pwned $(touch pwned) `touch pwned` | & > pwned\n'\"\\ *"
    assert text(tmp_path, tool(*SHOW, "{{ args.x }}", "{{ args.x }}!"), x=hostile) == (
        f"{hostile!a}\n{hostile + '!'!a}\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert text(tmp_path, tool(*SHOW, "{{ args.x }}"), x="") == "''\n", "an empty one is one too"


@pytest.mark.parametrize(
    ("value", "written"),
    [(5, "5"), (0.5, "0.5"), (True, "True"), (None, "None"), (["a"], "['a']"), ("5", "5"), ("ü\n", "ü\n")],
)
def test_values_are_written_as_text(value: object, written: str) -> None:
    assert build_argv(tool("x", "{{ args.x }}"), {"args": {"x": value}}) == ["x", written]


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("{{ args.y }}", "a", "argv element 2 cannot be filled in"),
        ("{{ args.x }}", "a\0b", "a NUL"),
        ("{{ args.x }}", "a\ud800", "half of a surrogate pair"),
        ("{{ args.x }}", "\udcff", "half of a surrogate pair"),
        ("{{ args.x }}", "-rf", "begin with a dash"),
        ("{{ args.x }}", "-", "begin with a dash"),
        ("{{ args.x }}", -5, "begin with a dash"),
        ("{{ args.x }}", "--", "begin with a dash"),
        ("{{ args.x|trim }}", "  -x", "begin with a dash"),
        ("{{ args.x }}-e", "", "begin with a dash"),
        ("{% if args.x %}{{ args.x }}{% endif %}-e", "", "begin with a dash"),
        ("-{{ args.x }}", "exec", "begin with a dash"),
        ("--{{ args.x }}=1", "exec", "begin with a dash"),
        ("{{- args.x }}", "-x", "begin with a dash"),
    ],
)
def test_unusable_argument_is_refused(source: str, value: object, why: str) -> None:
    with pytest.raises(CommandRefused, match=why):
        build_argv(tool("x", source), {"args": {"x": value}})
    if "dash" in why:
        build_argv(tool("x", source, dash_args=True), {"args": {"x": value}})


def test_a_refused_argument_runs_nothing(tmp_path: Path) -> None:
    fault = failure(tmp_path, tool("touch", "ran", "{{ args.x }}"), x="-x")
    assert fault.fields == {"tool": "look", "reason": "arguments"}
    assert list(tmp_path.iterdir()) == []


def test_params_fill_argv_and_do_not_hide_arguments(tmp_path: Path) -> None:
    returned = run_command(tmp_path, tool(*SHOW, "{{ p }}{{ args.x }}"), {"p": 1, "args": {"x": "no"}}, x="yes")
    assert text_of(returned.parts) == "'1yes'\n"


def test_too_long_argument_is_refused(tmp_path: Path) -> None:
    fault = failure(tmp_path, tool("true", "{{ args.x }}"), x="x" * 500_000)
    assert "longer than this system allows" in fault.message


# --- what it sees -------------------------------------------------------------------------------------------


def test_command_gets_only_the_declared_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_NOT_FOR_COMMANDS", "1")
    assert text(tmp_path, tool("env")) == ""
    env = {"A": "fixed", "B": "${SHORT}", "C": "<${PLAIN}>"}
    assert text(tmp_path, tool("env", env=env)) == "A=fixed\nB=x\nC=<a${TOKEN}b>\n", "a value is not read again"


def test_command_runs_in_the_declared_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert text(tmp_path, tool("pwd", "-P")) == f"{tmp_path}\n"
    assert text(tmp_path, tool("pwd", "-P", cwd="a/b")) == f"{tmp_path}/a/b\n"


@pytest.mark.parametrize("cwd", ["out", "out/ssl", "nowhere", "..", "/etc", "file"])
def test_folder_outside_the_project_is_refused(tmp_path: Path, cwd: str) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "file").touch()
    fault = failure(tmp_path, tool("pwd", "-P", cwd=cwd))
    assert "is not a folder of the project" in fault.message
    assert str(tmp_path) not in fault.message


def test_stdin_template_is_written_to_the_command(tmp_path: Path) -> None:
    assert text(tmp_path, tool("cat", stdin="<{{ args.x }}>"), x="ü\n-\0") == "<ü\n-\0>"
    assert text(tmp_path, tool("cat")) == ""
    large = "x" * 1_000_000
    assert text(tmp_path, tool("wc", "-c", stdin="{{ args.x }}"), x=large).strip() == "1000000"
    assert text(tmp_path, tool("true", stdin="{{ args.x }}"), x=large) == "", "nobody has to read it"


def test_resolved_program_runs_despite_another_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho first $0\n")
    (tmp_path / "tool").chmod(0o755)
    each = tool("./tool", cwd="sub")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tool").write_text("#!/bin/sh\necho second\n")
    (tmp_path / "sub" / "tool").chmod(0o755)
    assert text(tmp_path, each) == f"first {tmp_path}/tool\n"


def test_missing_or_invalid_program_is_not_run_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "tool"
    file.write_text("\x00\x01 no program")
    file.chmod(0o755)
    programs = find_programs(["./tool"], tmp_path)
    tools = ShellTools(tmp_path, programs, lookup)
    first = asyncio.run(tools.run(call(tool("./tool"))))
    file.unlink()
    second = asyncio.run(tools.run(call(tool("./tool"))))
    assert [each.fault and each.fault.message for each in (first, second)] == [
        'the command "./tool" was not run: it is neither a program for this machine nor a script that begins with #!',
        'the command "./tool" was not run: No such file or directory',
    ]
    file.write_text("#!/nowhere/perl\n")
    file.chmod(0o755)
    third = asyncio.run(tools.run(call(tool("./tool")))).fault
    assert third is not None
    assert third.message.endswith("the program named in its first line does not exist")


# --- what it says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "exits", "read", "fields"),
    [
        ("echo a", (0,), "a\n", None),
        ("printf a", (0,), "a", None),
        ("true", (0,), "", None),
        ("echo a; echo b >&2", (0,), "a\n[stderr]\nb\n", None),
        ("printf a; printf b >&2", (0,), "a\n[stderr]\nb", None),
        ("echo b >&2", (0,), "[stderr]\nb\n", None),
        ("echo a; exit 1", (0, 1), "[exit code 1]\na\n", None),
        ("echo a; exit 1", (0,), "[exit code 1]\na\n", {"exit": 1}),
        ("exit 0", (3,), "", {"exit": 0}),
        ("exit 255", (0,), "[exit code 255]\n", {"exit": 255}),
        ("echo a; kill -9 $$", (0,), "[killed by SIGKILL]\na\n", {"signal": "SIGKILL"}),
        ("kill -SEGV $$", (0, 139), "[killed by SIGSEGV]\n", {"signal": "SIGSEGV"}),
        ("kill -40 $$", (0,), "[killed by signal 40]\n", {"signal": "signal 40"}),
        (r"printf '\377a\302'", (0,), "\ufffda\ufffd", None),
    ],
)
def test_model_reads_exit_code_stdout_and_stderr(
    tmp_path: Path, line: str, exits: tuple[int, ...], read: str, fields: dict[str, object] | None
) -> None:
    returned = run_command(tmp_path, tool("sh", "-c", line, exits=exits))
    assert text_of(returned.parts) == read
    assert (returned.fault and returned.fault.fields) == (fields and {"tool": "look", **fields})
    assert returned.fault is None or returned.fault.code == "tool.execution"


def test_command_that_kills_its_supervisor_fails_and_leaves_no_process(tmp_path: Path) -> None:
    word = token()
    fault = failure(tmp_path, tool("sh", "-c", "sleep 0.1; kill -9 $PPID; sleep 600; true", word))
    assert fault.fields["reason"] == "supervisor"
    assert remaining_processes(word) == []


def test_command_that_kills_its_supervisor_at_once_counts_as_run(tmp_path: Path) -> None:
    """Even before the supervisor could report that it had begun, the fault does not say that it was not run."""
    for _ in range(10):
        word = token()
        fault = failure(tmp_path, tool("sh", "-c", "kill -9 $PPID; sleep 600; true", word))
        assert (fault.fields["reason"], "not run" in fault.message) == ("supervisor", False)
        assert remaining_processes(word) == []


def test_both_streams_are_read(tmp_path: Path) -> None:
    line = "head -c 9000000 /dev/zero >&2; echo out; head -c 9000000 /dev/zero >&2; echo end >&2"
    read = text(tmp_path, tool("sh", "-c", line))
    assert read.startswith("out\n[stderr]\n")
    assert read.endswith("\0end\n")
    assert "bytes left out …]" in read
    assert len(read) < 3 * shell.KEPT_BYTES


@pytest.mark.parametrize("where", ["", ">&2"])
def test_command_with_endless_output_is_stopped(tmp_path: Path, where: str) -> None:
    word = token()
    returned = run_command(tmp_path, tool("sh", "-c", f"yes 'again and again' {where}; true", word))
    assert returned.fault is not None
    assert returned.fault.fields["reason"] == "output"
    assert "wrote more than 67,108,864 bytes and was stopped" in returned.fault.message
    assert len(text_of(returned.parts)) < 3 * shell.KEPT_BYTES
    assert remaining_processes(word) == []


@given(
    data=st.lists(st.binary(max_size=20), max_size=20),
    head=st.integers(0, 30),
    tail=st.integers(0, 30),
)
def test_bounded_output_keeps_beginning_and_end(data: list[bytes], head: int, tail: int) -> None:
    output, whole = BoundedOutput(head=head, tail=tail), b"".join(data)
    for each in data:
        output.add(each)
    assert (output.total, output.beginning) == (len(whole), whole[:head])
    rest = whole[head:]
    assert output.end == (rest[-tail:] if tail else b"")
    assert output.omitted_bytes == len(whole) - len(output.beginning) - len(output.end)
    if not output.omitted_bytes:
        assert output.text() == whole.decode("utf-8", "replace")


@given(before=st.integers(0, 60), between=st.integers(0, 60), after=st.integers(0, 60))
def test_bounded_output_shows_no_part_of_a_secret(before: int, between: int, after: int) -> None:
    secret = b"correct horse battery"
    output = BoundedOutput(head=40, tail=40)
    output.add(b"a " * before + secret + b" b" * between + b" " + secret + b"c " * after)
    kept = output.text([secret]).replace(secret.decode(), "")
    for size in range(4, len(secret)):
        assert secret[:size].decode() not in kept
        assert secret[-size:].decode() not in kept


# --- when it is stopped -------------------------------------------------------------------------------------


def test_a_timeout_leaves_nothing(tmp_path: Path) -> None:
    word = token()
    argv = script("forks twice, takes a session, stays", word)
    each = tool(*argv, timeout=300)
    place = Place(
        clock=SystemClock(), executors={"shell": ShellTools(tmp_path, find_programs(["sh"], tmp_path), lookup)}
    )
    finished = asyncio.run(run_tool(place.world, call(each)))
    assert isinstance(finished, ToolFinished)
    assert finished.fault is not None
    assert finished.fault.code == "tool.timeout"
    assert remaining_processes(word) == []


# --- many ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [64, pytest.param(2000, marks=pytest.mark.long)])
def test_many_calls_leave_nothing(tmp_path: Path, calls: int) -> None:
    each = tool("sh", "-c", "cat; echo x >&2; exit 1", stdin="{{ args.x }}", exits=(1,))
    tools = ShellTools(tmp_path, find_programs(["sh"], tmp_path), lookup)

    async def batch() -> None:
        for returned in await asyncio.gather(*(tools.run(call(each, x=f"{n}")) for n in range(8))):
            assert returned.fault is None

    async def work() -> tuple[Resources, Resources]:
        await batch()
        before = held_resources()
        for _ in range(calls // 8):
            await batch()
        for _ in range(100):
            if has_no_new_resources(before, held_resources()):
                break
            await asyncio.sleep(0.02)
        return before, held_resources()

    before, after = asyncio.run(work())
    assert has_no_new_resources(before, after), (before, after)
