"""Live runs through the real command, with their requirements, output streams, signals and terminal output."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentrun.errors import code_of

from ..servers import closed_port
from .command import SCRIPT, agentrun, start
from .forked_command import Copy
from .shop_project import KEY, STORY, Project

SLOW_STORY = STORY.replace("text: I look it up.", "text: I look it up.\n    faults: [{delay: 60s}]")


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_run_without_a_cassette_goes_live_and_says_why(shop: Project) -> None:
    with shop.provider() as (server, environment):
        done = shop.run("--approve", "all", **environment)
        assert len(server.requests) == 4
    assert (done.code, done.out) == (0, "Done.\n")
    assert done.err.splitlines()[0] == (
        "live: this agent has no recorded case (requests go to openai, tools run for real)"
    )
    assert "(replayed)" not in done.err
    assert not shop.cassette.exists()


def test_first_line_names_the_server_of_a_base_url(shop: Project) -> None:
    with shop.provider() as (server, _):
        shop.edit("shop.yaml", "temperature: 0,", f'temperature: 0, base_url: "{server.url}/v1",')
        done = shop.run("--approve", "all")
    assert f"(requests go to openai at {server.url.removeprefix('http://')}, tools run for real)" in done.err
    shop.edit("shop.yaml", f'"{server.url}/v1"', '"${LOCAL_MODEL_URL}"')
    done = shop.run(LOCAL_MODEL_URL=f"http://127.0.0.1:{closed_port()}/v1")
    assert "(requests go to openai at ${LOCAL_MODEL_URL}, " in done.err


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        ("status: 401", "check the API key of openai"),
        ("status: 403", "check the API key of openai"),
        ("status: 404", "check `model.name` and the address of openai"),
        ('status: 200, body: "<html>"', "check that the address is that of a server for openai"),
    ],
)
def test_failure_of_wrong_settings_has_a_hint(shop: Project, fault: str, hint: str) -> None:
    with shop.provider(f'agentrun: "1"\nturns: [{{text: x, faults: [{{{fault}, times: 9}}]}}]\n') as (_, environment):
        done = shop.run("Something else", **environment)
    assert (done.code, f"  → {hint}\n" in done.err) == (6, True), done.err


def test_in_ci_it_never_goes_live_by_itself(shop: Project) -> None:
    with shop.provider() as (server, environment):
        done = shop.run(CI="true", **environment)
        assert (done.code, server.requests) == (3, [])
        assert "in CI a run is live only with --mode live" in done.err
        assert shop.run("--mode", "live", "--approve", "all", CI="true", **environment).code == 0


def test_missing_key_error_names_the_variable_and_a_recorded_case(shop: Project) -> None:
    shop.recorded()
    done = shop.run("Something else")
    assert (done.code, done.out) == (2, "")
    assert "OPENAI_API_KEY is not set" in done.err
    assert "export OPENAI_API_KEY" in done.err
    assert "--case default" in done.err


def test_all_missing_variables_of_the_model_are_listed(shop: Project) -> None:
    shop.edit("shop.yaml", "temperature: 0,", "temperature: 0, base_url: '${HOST_URL}', api_key: '${HOST_KEY}',")
    done = shop.run(HOST_KEY="")
    assert (done.code, done.err.splitlines()[0]) == (2, "host.missing: HOST_URL and HOST_KEY are not set")
    assert "set them: export HOST_URL=… HOST_KEY=…" in done.err


LACKING = """
  stock: {kind: http, url: "${STOCK_URL}/items", auth: {secret: "${STOCK_TOKEN}"}, description: Counts.}
  days: {kind: shell, argv: [no-such-datex], description: Counts., effect: read}
  hours: {kind: shell, argv: [no-such-datex, -h], description: Counts., effect: read}
"""


@pytest.mark.parametrize("mode", ["live", "record"])
def test_all_missing_variables_and_commands_of_tools_are_listed(shop: Project, mode: str) -> None:
    shop.edit("shop.yaml", "\ntools:", f"\ntools:{LACKING.rstrip()}")
    shop.edit("shop.yaml", "default: deny", "default: allow")
    yes = ["--yes"] if mode == "record" else []
    done = shop.run("--mode", mode, *yes, OPENAI_API_KEY=KEY)
    said = (
        "STOCK_URL is not set (needed by tool stock); STOCK_TOKEN is not set (needed by tool stock); "
        'the command "no-such-datex" is not on PATH (needed by tool days, tool hours)'
    )
    assert (done.code, f"host.missing: {said}\n" in done.err) == (2, True), done.err
    assert "script play the model" not in done.err
    error = json.loads(shop.run("--mode", mode, *yes, "--json", OPENAI_API_KEY=KEY).out.splitlines()[-1])["error"]
    assert error["fields"]["name"] == "STOCK_URL"
    assert error["fields"]["names"] == ["STOCK_URL", "STOCK_TOKEN", "no-such-datex"]


def test_unreachable_provider_is_named_with_a_hint(shop: Project) -> None:
    shop.recorded()
    shop.edit("shop.yaml", "first_delay: 1ms", "attempts: 1")
    port = closed_port()
    done = shop.run("Something else", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=f"http://127.0.0.1:{port}/v1")
    assert (done.code, done.out) == (6, "")
    assert f"provider.transient: no reply came from 127.0.0.1:{port} (OPENAI_BASE_URL): " in done.err
    assert "check that the server is running" in done.err
    assert "--case default" in done.err


@pytest.mark.parametrize(
    ("approve", "answer"), [("all", "approved"), ("none", "denied"), (None, None), ("file", "approved")]
)
def test_approve_option_answers_the_question(shop: Project, approve: str | None, answer: str | None) -> None:
    (shop.root / "yes.yaml").write_text("refund: approved\n")
    given = {"all": ["--approve", "all"], "none": ["--approve", "none"], "file": ["--approve", "yes.yaml"], None: []}
    with shop.provider() as (_, environment):
        done = shop.run(*given[approve], "--json", **environment)
    answers = [line["record"]["fact"]["answer"] for line in done.lines() if "approval_answered" in json.dumps(line)]
    assert answers == [answer] * (answer is not None)
    assert ("refund 1042 20" in shop.traces()) == (answer == "approved")


@pytest.mark.parametrize("text", ["refund: perhaps\n", "- refund\n", "refund: [approved]\n", "refund: approved\n x"])
def test_invalid_approve_file_is_refused(shop: Project, text: str) -> None:
    (shop.root / "answers.yaml").write_text(text)
    done = shop.run("--approve", "answers.yaml")
    assert (done.code, "answers.yaml:" in done.err) == (2, True)
    assert shop.run("--approve", "nowhere.yaml").code == 2


def test_unknown_names_in_an_approve_file_are_refused(shop: Project) -> None:
    """In a file of answers a name that is wrong would leave a question without its answer."""
    (shop.root / "answers.yaml").write_text("refnd: denied\nlook: approved\ninput: denied\n'*': denied\n'x*': denied\n")
    done = shop.run("--approve", "answers.yaml")
    assert (done.code, done.err.count("spec.unknown_tool")) == (2, 2)
    assert 'answers.yaml:1:1  spec.unknown_tool  there is no tool, sink or stage "refnd"' in done.err
    assert 'did you mean "refund"?' in done.err
    assert "use one of input, look, output, refund" in done.err


def test_json_has_start_records_and_outcome(shop: Project) -> None:
    with shop.provider() as (_, environment):
        done = shop.run("--json", "--approve", "all", **environment)
    lines = done.lines()
    assert done.err == ""
    assert (lines[0]["start"]["mode"], lines[-1]["outcome"]["answer"]) == ("live", "Done.")
    facts = [line["record"]["fact"]["type"] for line in lines[1:-1]]
    assert (facts[0], facts[-1], facts.count("tool_finished")) == ("run_started", "run_stopped", 2)


def test_quiet_prints_only_the_answer_or_the_error(shop: Project) -> None:
    with shop.provider() as (_, environment):
        done = shop.run("-q", "--approve", "all", **environment)
    assert (done.out, done.err) == ("Done.\n", "")
    failed = shop.run("-q", "--mode", "replay")
    assert "cassette.miss" in failed.err


def test_print_of_a_tool_is_shown_on_stderr(shop: Project) -> None:
    shop.edit("desk.py", '    return "paid"', '    print("counting coins")\n    return "paid"')
    with shop.provider() as (_, environment):
        done = shop.run("--approve", "all", **environment)
    assert done.out == "Done.\n"
    assert "refund printed: counting coins" in done.err


def test_journal_is_written_during_the_run(shop: Project) -> None:
    with (
        shop.provider(SLOW_STORY) as (server, environment),
        started_command(shop, environment, "--journal", "run.jsonl") as run,
    ):
        wait_until(lambda: bool(server.requests))
        facts = [json.loads(line)["fact"]["type"] for line in (shop.root / "run.jsonl").read_text().splitlines()]
        assert facts == ["run_started", "model_asked"]
        run.kill()


def test_a_journal_replaces_only_a_journal(shop: Project) -> None:
    (shop.root / "notes.txt").write_text("mine\n")
    with shop.provider() as (server, environment):
        done = shop.run("--journal", "notes.txt", "--approve", "all", **environment)
        assert (done.code, server.requests) == (2, [])
        for _ in range(2):
            assert shop.run("--journal", "run.jsonl", "--approve", "all", **environment).code == 0
    assert (shop.root / "notes.txt").read_text() == "mine\n"


def test_journal_can_be_written_to_a_pipe(shop: Project) -> None:
    os.mkfifo(shop.root / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((shop.root / "pipe").read_bytes()))
    reader.start()
    with shop.provider() as (_, environment):
        assert shop.run("--journal", "pipe", "--approve", "all", **environment).code == 0
    reader.join(timeout=60)
    assert got[0].startswith(b'{"at":')
    assert (shop.root / "pipe").is_fifo()


def test_a_tool_that_hangs_does_not_hold_the_command(shop: Project) -> None:
    shop.edit("desk.py", '    return "paid"', '    import time\n    time.sleep(600)\n    return "paid"')
    shop.edit("shop.yaml", 'call: "desk:refund"', 'call: "desk:refund", timeout: 1s')
    with shop.provider() as (_, environment):
        done = shop.run("--approve", "all", **environment)
    assert (done.code, "tool.timeout" in done.err) == (0, True)


def test_attachments_are_recorded_and_a_changed_one_is_a_miss(shop: Project) -> None:
    (shop.root / "note.txt").write_text("the lamp is broken")
    shop.record("--attach", "note.txt")
    assert "the lamp is broken" in shop.cassette.read_text()
    assert shop.run("--attach", "note.txt").code == 0
    (shop.root / "note.txt").write_text("the lamp is fine")
    assert shop.run("--attach", "note.txt").code == 3
    assert shop.run("--attach", "nothing.txt").code == 2


# --- stopping ----------------------------------------------------------------------------------------------------


def wait_until(holds: object) -> None:
    end = time.monotonic() + 60
    assert callable(holds)
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def started_command(
    shop: Project, environment: dict[str, str], *args: str, fresh: bool = False
) -> Iterator[subprocess.Popen[bytes] | Copy]:
    """`fresh`: Python starts for it."""
    words, env = ["shop.yaml", "--approve", "all", *args], {"PATH": os.environ["PATH"], **environment}
    pipe = subprocess.PIPE
    run = (
        subprocess.Popen([SCRIPT, *words], cwd=shop.root, env=env, stdout=pipe, stderr=pipe)
        if fresh
        else start(*words, cwd=shop.root, environment=environment)
    )
    try:
        yield run
    finally:
        run.kill()
        run.communicate()


@pytest.mark.parametrize("mode", ["live", "record"])
def test_interrupt_cancels_cleanly(shop: Project, mode: str) -> None:
    arguments = ("--journal", "run.jsonl", "--mode", mode, *(["--yes"] if mode == "record" else []))
    with shop.provider(SLOW_STORY) as (server, environment), started_command(shop, environment, *arguments) as run:
        wait_until(lambda: bool(server.requests))
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (130, b"")
    assert b"cancelling" in err
    last = json.loads((shop.root / "run.jsonl").read_text().splitlines()[-1])["fact"]
    assert (last["type"], last["fault"]["code"]) == ("run_stopped", "cancelled")
    assert not shop.cassette.exists(), "a run that was cancelled is no recording"


STAYS = """\
    import asyncio
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""
"""What a tool does that cannot be stopped: nothing but a second signal ends the command."""


def test_second_signal_ends_the_command_at_once(shop: Project) -> None:
    """While a tool that cannot be stopped holds everything up."""
    shop.edit("desk.py", "def look", "async def look")
    shop.edit("desk.py", '    return {"order": order', STAYS + '    return {"order": order')
    shop.edit("shop.yaml", 'call: "desk:look", effect: read', 'call: "desk:look", effect: read, timeout: 10m')
    with shop.provider() as (_, environment), started_command(shop, environment) as run:
        wait_until(lambda: bool(shop.traces()))
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        assert any(b"cancelling" in line for line in run.stderr)
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=60) == 130


# --- terminals ---------------------------------------------------------------------------------------------------

HOSTILE = "\\u001b]52;c;eA==\\u0007\\u001b[2J\\u009b5m\\u202e"
CONTROL = re.compile(r"\x1b\]|\x1b\[2J|\x9b|\u202e|\x07")


def stderr_in_a_terminal(
    shop: Project, environment: dict[str, str], *args: str, columns: int = 80, term: str = "xterm"
) -> str:
    """All that a terminal gets on standard error."""
    ours, theirs = pty.openpty()

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words, env = ("shop.yaml", "--approve", "all", *args), {"TERM": term, **environment}
    run = start(*words, cwd=shop.root, environment=env, stderr=theirs)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # the other side has closed it
        while run.poll() is None or select.select([ours], [], [], 0.2)[0]:
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65536)
    os.close(ours)
    run.communicate()
    assert run.returncode == 0, seen
    return seen.decode("utf-8", "replace")


@pytest.mark.parametrize(("columns", "term"), [(80, "xterm"), (20, "xterm"), (80, "dumb")])
def test_control_characters_of_model_and_tools_are_escaped(shop: Project, columns: int, term: str) -> None:
    shop.edit("desk.py", 'return "paid"', f'print("{HOSTILE}")\n    return "{HOSTILE}paid"')
    story = STORY.replace("text: I look it up.", f'text: "{HOSTILE}I look it up."')
    with shop.provider(story) as (_, environment):
        seen = stderr_in_a_terminal(shop, environment, columns=columns, term=term)
    assert CONTROL.search(seen) is None, repr(seen)
    assert "refund" in seen
    assert ("\x1b" in seen) == (term != "dumb")


def test_no_color_option_and_variable_disable_colours(shop: Project) -> None:
    shop.recorded()
    assert "\x1b[3" in stderr_in_a_terminal(shop, {}, "--case", "default")
    assert "\x1b[3" not in stderr_in_a_terminal(shop, {}, "--case", "default", "--no-color")
    assert "\x1b[3" not in stderr_in_a_terminal(shop, {"NO_COLOR": "1"}, "--case", "default")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_run_continues_when_stdout_or_stderr_is_closed(shop: Project, stream: str) -> None:
    """A closed pipe is no error, and the run goes on to its end."""
    reading, writing = os.pipe()
    os.close(reading)
    with shop.provider() as (server, environment):
        words = ("shop.yaml", "--approve", "all", "--journal", "run.jsonl")
        run = start(*words, cwd=shop.root, environment=environment, **{stream: writing})
        os.close(writing)
        said = run.communicate(timeout=60)
        assert len(server.requests) == 4
    assert run.returncode == 0, said
    assert '"status":"completed"' in (shop.root / "run.jsonl").read_text()


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.45, 0.6, 0.8])
def test_interrupt_at_any_moment_leaves_a_finished_journal(shop: Project, delay: float) -> None:
    """Also while the command is still being prepared: a journal that was begun has its end."""
    with (
        shop.provider(SLOW_STORY) as (_, environment),
        started_command(shop, environment, "--journal", "run.jsonl", fresh=True) as run,
    ):
        time.sleep(delay)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=60)
    assert run.returncode in (130, -signal.SIGINT) or b"<frozen site>" in err, err  # Python itself was still starting
    journal = shop.root / "run.jsonl"
    if journal.exists() and journal.stat().st_size:
        assert b"Traceback" not in err or b"Exception ignored" in err, err  # Python reports what it caught itself
        assert json.loads(journal.read_text().splitlines()[-1])["fact"]["type"] == "run_stopped"


LOSES_THE_INTERRUPT = """\
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                {then}

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("then", ["pass", "raise RuntimeError"])
def test_interrupt_that_a_library_catches_still_cancels(shop: Project, then: str) -> None:
    site = losing_the_interrupt(shop, "agentrun.engine.worlds.live", then)
    with (
        shop.provider(SLOW_STORY) as (_, environment),
        started_command(shop, {**environment, "PYTHONPATH": site}, fresh=True) as run,
    ):
        _, err = run.communicate(timeout=60)
    assert (run.returncode, b"cancelling" in err) == (130, then == "pass")


def losing_the_interrupt(shop: Project, module: str, then: str = "pass") -> str:
    """A path for Python. With it an interrupt comes while a module is imported, and is caught there."""
    (shop.root / "site").mkdir()
    (shop.root / "site/sitecustomize.py").write_text(LOSES_THE_INTERRUPT.format(module=module, then=then))
    return str(shop.root / "site")


@pytest.mark.parametrize("module", ["agentrun.cli", "agentrun.errors", "agentrun.cli.group", "click"])
def test_interrupt_during_the_first_imports_prints_nothing(shop: Project, module: str) -> None:
    site = losing_the_interrupt(shop, module, "raise")
    with started_command(shop, {"PYTHONPATH": site}, fresh=True) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (code_of("cancelled").exit, b"", b"")


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["shop.yaml"], "agentrun.engine.run"),
        (["validate", "shop.yaml"], "agentrun.compiler.compile"),
        (["test"], "agentrun.testing.suite.selection"),
        (["test", "--record", "all", "--yes"], "agentrun.testing.suite.recording"),
    ],
    ids=["replay", "validate", "test", "record"],
)
def test_interrupt_that_a_library_catches_is_no_success(shop: Project, command: list[str], module: str) -> None:
    """Also where there is no run to cancel. A suite runs no case after it."""
    (shop.root / "shop.cases.yaml").write_text('agentrun: "1"\ncases:\n  - {name: default}\n  - {name: b}\n')
    shop.recorded()
    path = losing_the_interrupt(shop, module)
    with shop.provider() as (server, environment):
        done = agentrun(*command, cwd=shop.root, **environment, PYTHONPATH=path)  # type: ignore[arg-type]  # only texts
        assert (done.code, server.requests) == (130, []), done.err + done.out
    assert command[0] != "test" or "passed" not in done.out, done.out


def test_usage_error_with_json_is_a_json_object(shop: Project) -> None:
    for args in (("--json", "--mode", "sometimes"), ("--json", "--record", "some"), ("--json", "--attach", "nothing")):
        done = shop.run(*args)
        (line,) = done.lines()
        assert (line["error"]["code"], line["error"]["exit"], done.code, done.err) == ("usage", 2, 2, "")


def test_final_newline_of_a_message_on_stdin_is_removed(shop: Project) -> None:
    shop.record("--case", "asked", "Where is it?")
    for text in (b"Where is it?", b"Where is it?\n", b"Where is it?\r\n"):
        assert shop.run("-", stdin=text).err.startswith("replay: ")
    assert shop.run("-", stdin=b"Where is it?\n\n", CI="1").code == 3


def test_answer_is_printed_unchanged_except_for_control_characters(shop: Project) -> None:
    """But for what would act on a terminal: the reader of a pipe may be one."""
    text = "\\U0001f468\\u200d\\U0001f469 می\\u200cکنم a\\tb\\u00a0c"
    story = f'agentrun: "1"\nturns: [{{text: "{text} \\u001b[2J x\\u200dy \\u202e"}}]\n'
    with shop.provider(story) as (_, environment):
        done = shop.run(**environment)
    assert done.out == "\U0001f468\u200d\U0001f469 می\u200cکنم a\tb\u00a0c \\x1b[2J x\\u200dy \\u202e\n"


def test_two_cases_with_one_name_are_refused(shop: Project) -> None:
    (shop.root / "shop.cases.yaml").write_text('agentrun: "1"\ncases:\n  - name: a\n  - {name: a, input: Other}\n')
    done = shop.run("--case", "a")
    assert (done.code, "shop.cases.yaml:4:" in done.err) == (2, True)


@pytest.mark.parametrize("name", ["", ".", "folder"])
def test_journal_option_needs_a_file_name(shop: Project, name: str) -> None:
    (shop.root / "folder").mkdir()
    with shop.provider() as (server, environment):
        assert (shop.run("--journal", name, **environment).code, server.requests) == (2, [])
