"""The process whose forks become commands, started by `forked_command.py`.

    python fork_server.py CHANNEL SCRIPT

It is nobody's child, so that a test may say that it leaves none, and ends when its channel is closed.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import shutil
import socket
import sys
import tempfile
import termios
import threading
import time
import warnings
from typing import NoReturn

AGENT = """\
agentrun: "1"
name: first
model: {provider: openai, name: gpt-4.1-mini}
params: {who: {type: string, pattern: "^a", default: a}}
instructions: "Hello {{ who }}."
input: Hello
tools: {look: {kind: shell, description: Looks., argv: [ls]}}
policy: {default: deny, rules: [{id: reads, allow: look, when: "params.who.matches('a')"}]}
budgets: {turns: 2, tokens: 2k}
retry: {attempts: 1}
"""
SHIPPED = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = "support"
"""An example with Python tools, cases, approvals and a recording."""
NO_PROVIDER = {"OPENAI_API_KEY": "sk-first-0123456789abcdef", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
FIRST = (
    "validate a.yaml",
    "compile a.yaml",
    "a.yaml --mode live",
    "a.yaml --mode record --yes",
    f"specs/{EXAMPLE}.yaml --journal journal.jsonl",
    f"test specs/{EXAMPLE}.cases.yaml",
    "cassette ls",
    f"cassette show cassettes/{EXAMPLE}/default.yaml",
    "schema --write schemas",
)


def main(channel: socket.socket, script: str) -> None:
    if os.fork():
        os._exit(0)
    sys.path[0] = os.path.dirname(script)
    _import_everything()
    _first_use()
    channel.sendall(b"!")
    run_as_command(script, *_serve_forks(channel))


def _import_everything() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, when they are compiled
        for name in ("anyio._backends._asyncio", "httpx", "mcp", "vcr"):
            importlib.import_module(name)
    package = importlib.import_module("agentrun")
    for module in pkgutil.walk_packages(package.__path__, "agentrun."):
        importlib.import_module(module.name)


def _first_use() -> None:
    """Run commands on small agents, for what is made when it is used first: validators, decoders, patterns.

    One is ours, and has a provider that does not answer. The other is an example that is shipped.
    """
    before, environment, (out, err) = os.getcwd(), dict(os.environ), (sys.stdout, sys.stderr)
    modules, path = set(sys.modules), [*sys.path]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as null:
        os.chdir(folder)
        _write_project()
        os.environ.update(NO_PROVIDER)
        sys.stdout = sys.stderr = null
        try:
            for command in FIRST:
                sys.argv = ["agentrun", *command.split()]
                with contextlib.suppress(SystemExit):
                    importlib.import_module("agentrun.cli").main()
        finally:
            sys.stdout, sys.stderr = out, err
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(before)
        for name in sys.modules.keys() - modules:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(os.path.realpath(folder)):
                del sys.modules[name]
    sys.path[:] = path
    importlib.import_module("agentrun.tools.project_modules").finder.forget_projects()
    vars(importlib.import_module("agentrun.tools.process_owner"))["is_owned"] = False  # a test may start a program
    if len(os.listdir("/proc/self/task")) > 1:
        raise SystemExit("what was imported has started a thread, which a copy would not have")
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def _write_project() -> None:
    """The two agents, in this folder."""
    with open("a.yaml", "w", encoding="utf-8") as file:
        file.write(AGENT)
    for each in ("specs", f"cassettes/{EXAMPLE}"):
        shutil.copytree(os.path.join(SHIPPED, each), each)
    shutil.copy(os.path.join(SHIPPED, "pyproject.toml"), ".")


def _serve_forks(channel: socket.socket) -> tuple[int, list[int]]:
    """Wait, and copy this process for all that is asked. Only a copy returns, with what it is to be."""
    while True:
        said, files, _, _ = socket.recv_fds(channel, 1, 4)
        if not said:
            os._exit(0)
        copy = os.fork()
        if copy == 0:
            channel.detach()
            return files[0], files[1:]
        for file in files:
            os.close(file)
        channel.sendall(copy.to_bytes(4, "big"))
        code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        channel.sendall(code.to_bytes(4, "big", signed=True))


def run_as_command(script: str, asked: int, streams: list[int]) -> NoReturn:
    """A command, from here on, with nothing open but its streams."""
    with open(os.dup(asked), encoding="utf-8") as file:
        given = json.load(file)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)
    if given["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(given["umask"])
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    time.tzset()
    sys.argv = [script, *given["args"]]
    try:
        if given["program"] is None:
            importlib.import_module("agentrun.cli").main()
            raise AssertionError("a command ends itself")
        exec(given["program"], {"__name__": "__main__"})  # noqa: S102  # of a test
    except SystemExit as end:
        _end(end.code)
    _end(0)


def _end(code: object) -> NoReturn:
    """All that Python does at its end but taking its modules apart, which is most of the work.

    What was forgotten open says so, as far as nobody holds it.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads; nothing else does
    atexit._run_exitfuncs()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
