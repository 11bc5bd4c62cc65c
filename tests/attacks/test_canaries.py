"""31 credentials of an environment in 8 forms: none is in a byte that any command writes or prints."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from agentrun.testing.provider import ScriptedProvider

from ..cli import forked_command
from ..credential_names import CREDENTIAL_NAMES

VALUES = {name: f'cAnary{number:02} of "{name}" /ü\\{number * 7919:05}' for number, name in enumerate(CREDENTIAL_NAMES)}
COOKIE = "cOokie-cAnary-17"
INNER = "iNner/cAnary 18"
STRUCTURED = {
    "SESSION_COOKIE": f"sid={COOKIE}; Path=/",
    "GOOGLE_CREDENTIALS": json.dumps({"type": "service_account", "client_secret": INNER}),
    "SENTRY_DSN": "https://dSn-cAnary-19@o1.ingest.example/7",
}
ENVIRONMENT = {**VALUES, **STRUCTURED}
PARTS = {"the cookie": COOKIE, "the client secret": INNER, "the user info": "dSn-cAnary-19"}
FORMS: dict[str, Callable[[str], list[str]]] = {
    "raw": lambda value: [value, repr(value)[1:-1]],
    "upper case": lambda value: [value.upper()],
    "lower case": lambda value: [value.lower()],
    "url": lambda value: [quote(value, safe=""), quote(value)],
    "base64": lambda value: [
        b64encode(b"x" * before + value.encode()).decode().rstrip("=")[2 if before else 0 : -2] for before in range(3)
    ],
    "hex": lambda value: [value.encode().hex(), value.encode().hex().upper()],
    "json": lambda value: [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]],
    "json twice": lambda value: [json.dumps(json.dumps(value))[3:-3]],
}
CANARIES = {
    text.encode(): (name, form)
    for name, value in {**ENVIRONMENT, **PARTS}.items()
    for form, encode in FORMS.items()
    for text in encode(value)
}
SPEC = """\
agentrun: "1"
name: canary
model: {provider: openai, name: gpt-4.1-mini, stream: true}
instructions: "Say everything. %s"
input: Hello
tools: {leak: {kind: python, call: "desk:leak", effect: read}}
policy: {default: %s}
hooks: [{id: look, at: on_output, call: "desk:look", on_failure: continue}]
guards: {repeated_call: off, repeated_batch: off}
budgets: {turns: 30, time: 5m}
"""
DESK = """\
import base64, json, logging, os, sys, warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

def look(question: object) -> None:
    if "DIES" in os.environ:
        os.kill(os.getpid(), 9)
    everything = list(os.environ.values())
    with open("processes.txt", "ab") as file:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getsid(int(process.name)) == os.getsid(0):
                    file.write((process / "cmdline").read_bytes())
    logging.getLogger("desk").error("all of %s", everything, exc_info=RuntimeError(everything))
    logging.getLogger("desk").error("%d", everything)
    warnings.warn(str(everything))
    raise RuntimeError(everything)

def leak(how: str) -> object:
    values = [value for name, value in sorted(os.environ.items()) if name != "PATH"]
    ways = {
        "raw": str, "upper case": str.upper, "lower case": str.lower, "url": lambda each: quote(each, safe=""),
        "hex": lambda each: each.encode().hex(), "json": json.dumps,
        "json twice": lambda each: json.dumps(json.dumps(each)),
        "base64": lambda each: [base64.b64encode(("x" * n + each).encode()).decode() for n in range(3)],
    }
    if how == "environ":
        return dict(os.environ)
    if how == "raise":
        raise RuntimeError(repr(os.environ))
    told = [ways[how](each) for each in values]
    print(told)
    print("\\n".join(map(str, told)), file=sys.stderr)
    return told
"""


CASES = """\
agentrun: "1"
cases:
  - {name: default, assert: [{type: journal-snapshot}]}
  - {name: fails, cassette: default, assert: [{type: contains, value: nowhere}]}
"""
SHOWING = (
    "runs",
    "runs --json",
    "show RUN",
    "show RUN --json",
    "verify RUN",
    "audit RUN",
    "events --json",
    "events",
    "sessions",
    "sessions show mine",
    "cassette show cassettes/canary/default.yaml",
    "cassette audit",
    "doctor",
    "doctor --json",
)


def leaks(data: bytes) -> set[tuple[str, str]]:
    return {canary for text, canary in CANARIES.items() if text in data}


def story() -> str:
    """A model that calls the tool in every way and repeats everything, in chunks of three characters."""
    text = " ".join(each for value in (*ENVIRONMENT.values(), *PARTS.values()) for each in FORMS["upper case"](value))
    calls = [{"calls": [{"tool": "leak", "args": {"how": how}}]} for how in (*FORMS, "environ", "raise")]
    said = [text, *ENVIRONMENT.values(), *PARTS.values()]
    turns = [*calls, {"calls": [{"tool": "leak", "args": {"how": text}}]}, {"text": " ".join(said), "chunk": 3}]
    return yaml.safe_dump({"agentrun": "1", "turns": turns}, allow_unicode=True)


class Desk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.printed: dict[str, bytes] = {}
        for name, text, policy in (("canary", "", "allow"), ("planted", COOKIE, "allow"), ("asking", "", "ask")):
            (root / f"{name}.yaml").write_text(SPEC % (text, policy), encoding="utf-8")
        (root / "desk.py").write_text(DESK, encoding="utf-8")
        (root / "pyproject.toml").write_text("[tool.agentrun]\n", encoding="utf-8")
        self.mine = {path.name for path in root.iterdir()}

    def run(self, *args: str, environment: Mapping[str, str], program: str | None = None) -> int:
        given = {"PATH": "/usr/bin:/bin", "HOME": str(self.root), **environment}
        done: subprocess.CompletedProcess[bytes] = forked_command.run(args, self.root, given, b"", 120, program)

        self.printed[" ".join(args)] = done.stdout + b"\n" + done.stderr
        return done.returncode

    def start(self, *args: str, environment: Mapping[str, str]) -> int:
        """A real process that shows all warnings of Python."""
        given = {"PATH": "/usr/bin:/bin", "HOME": str(self.root), **environment}
        command = [sys.executable, "-Xdev", *args]
        done = subprocess.run(command, cwd=self.root, env=given, capture_output=True, check=False, timeout=120)
        self.printed[args[0]] = done.stdout + b"\n" + done.stderr
        return done.returncode

    def files(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and path.name not in self.mine and path.suffix != ".pyc":
                yield path.relative_to(self.root).as_posix(), path.read_bytes()

    def leaks(self) -> dict[str, set[tuple[str, str]]]:
        places = {**self.printed, **dict(self.files())}
        return {place: found for place, data in places.items() if (found := leaks(data))}


MAIN = """
from agentrun.cli import main
main()
"""
RAISE = """
from agentrun.engine import driver
def fail(*args, **options):
    import os
    raise RuntimeError(list(os.environ.values()))
driver.drive = driver.drive_with_children = fail
from agentrun.engine import run
run.drive_with_children = fail
"""
KEEP_MESSAGES = """
from agentrun.store.inbox import Inbox
Inbox.remove = lambda inbox, name: None
"""
PYTEST = """
import sys, pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", "-vv", "-l", "-rA", "--log-level=DEBUG", *sys.argv[1:]]))
"""
XDIST = ("-n1", "-vv", "-l", "-rA", "--log-level=DEBUG", "--agentrun-live-tools", "--junitxml=xdist.xml")
RECORD = """
import json, os, sys, urllib.request, vcr, agentrun.vcr
everything = list(os.environ.values())
message = {"role": "user", "content": json.dumps(everything)}
body = json.dumps({"model": "gpt-4.1-mini", "stream": True, "messages": [message]})
key = {"authorization": "Bearer " + os.environ["DB_PASS"].encode().hex()}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body.encode(), key)
with agentrun.vcr.register(vcr.VCR()).use_cassette("vcr.yaml"):
    urllib.request.urlopen(request).read()
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "canary.cases.yaml").write_text(CASES, encoding="utf-8")
    return Desk(tmp_path)


@pytest.fixture
def given() -> Iterator[dict[str, str]]:
    """The environment of a run that can reach its model."""
    with ScriptedProvider(story()) as server:
        yield {**ENVIRONMENT, "OPENAI_API_KEY": "sk-any", "OPENAI_BASE_URL": f"{server.url}/v1"}


def test_no_canary_is_written_or_printed(desk: Desk, given: dict[str, str]) -> None:
    record = ("canary.yaml", "--mode", "record", "--yes", "--journal", "record.jsonl")
    assert desk.run(*record, environment=given) == 0
    (stored,) = (desk.root / ".agentrun" / "runs").glob("run-*")
    assert desk.run("planted.yaml", "--mode", "live", "--json", environment=given) == 0
    assert desk.run("canary.yaml", "--new-session", "mine", "--journal", "-", environment=given) == 0
    assert desk.run("test", "--record", "all", "--yes", "-v", "--junit", "junit.xml", environment=given) == 1
    for name, option in (("AGENTRUN_TRACEBACK", "--json"), ("NO_TRACEBACK", "--no-color")):
        failing = {**given, name: "1"}
        assert desk.run("canary.yaml", "--mode", "live", option, environment=failing, program=RAISE + MAIN) == 70
    for command in SHOWING:
        assert desk.run(*command.replace("RUN", stored.name).split(), environment=ENVIRONMENT) == 0, command
    assert desk.run("canary.yaml", "--json", "--journal", "replay.jsonl", environment=ENVIRONMENT) == 0
    desk.run("test", "--update", environment=ENVIRONMENT)
    desk.run("test", "-v", "--junit", "junit.xml", environment={})
    assert desk.start("-mpytest", *XDIST, environment=given) == 1
    names = dict(desk.files())
    assert {"record.jsonl", "replay.jsonl", "junit.xml", "cassettes/canary/default.yaml"} <= names.keys()
    assert any(name.startswith(".agentrun/runs/") for name in names)
    assert b"[redacted:PGPASSWORD]" in names["cassettes/canary/default.yaml"]
    assert b"RuntimeError" in desk.printed["canary.yaml --mode live --json"]
    assert b"[redacted:PGPASSWORD]" in desk.printed["events --json"]
    assert b"agentrun" in names["processes.txt"]
    assert b"UserWarning" in desk.printed["-mpytest"]
    assert desk.leaks() == {}


def test_no_canary_is_in_a_recording_that_was_killed(desk: Desk, given: dict[str, str]) -> None:
    """Each interaction is written when it ends, and `resume` finishes the cassette."""
    record = ("canary.yaml", "--mode", "record", "--yes")
    assert desk.run(*record, environment={**given, "DIES": "1"}) == -9
    (run,) = (desk.root / ".agentrun" / "runs").glob("run-*")
    assert any(b"[redacted:PGPASSWORD]" in each.read_bytes() for each in run.glob("recording*"))
    assert desk.leaks() == {}
    assert desk.run("resume", run.name, environment=given) == 0, desk.printed
    assert b"[redacted:PGPASSWORD]" in dict(desk.files())["cassettes/canary/default.yaml"]
    assert desk.leaks() == {}


def test_no_canary_is_in_messages_to_a_run(desk: Desk, given: dict[str, str]) -> None:
    """What a person sends or answers is in the inbox of the run, and then in its journal."""
    everything = json.dumps([*ENVIRONMENT.values(), *PARTS.values()])
    (desk.root / ".env").write_text("SHOP_PASS=cAnary of a file\n", encoding="utf-8")
    assert desk.run("asking.yaml", "--mode", "live", "--detach", environment=given) == 8
    desk.run("approvals", environment=given)
    desk.run("approvals", "--json", environment=given)
    for args in (
        ["send", "-", f"{everything} cAnary of a file", "--no-resume"],
        ["deny", "-", "c1.0", "--reason", everything],
    ):
        code = desk.run(*args, "--json", environment=given, program=KEEP_MESSAGES + MAIN)
        assert code in (0, 8), desk.printed
    places = dict(desk.files())
    assert len([name for name in places if "/inbox/" in name]) == 2
    assert not [
        name for name, data in {**places, **desk.printed}.items() if b"cAnary of a file" in data and name != ".env"
    ]
    assert desk.leaks() == {}


def test_no_canary_is_in_the_reports_of_pytest(desk: Desk, given: dict[str, str]) -> None:
    """pytest shows local variables, logs, warnings and captured output, and writes them to its own report."""
    record = ("--agentrun-record", "all", "--agentrun-yes")
    failing_cases = CASES.replace("{type: journal-snapshot}", "{type: contains, value: nowhere}")
    (desk.root / "canary.cases.yaml").write_text(failing_cases, encoding="utf-8")
    assert desk.run("--junitxml=one.xml", "-ojunit_logging=all", *record, environment=given, program=PYTEST) == 1
    for name in ("AGENTRUN_TRACEBACK", "NO_TRACEBACK"):
        failing = {**given, name: "1"}
        assert desk.run(f"--junitxml={name}.xml", *record, environment=failing, program=RAISE + PYTEST) == 1
    printed = b"".join(desk.printed.values())
    for shown in (b"desk:desk.py", b"UserWarning", b"RuntimeError: ['", b"Traceback", b"[redacted:PGPASSWORD]"):
        assert shown in printed, printed.decode()
    places = dict(desk.files())
    assert b"PGPASSWORD" in places["one.xml"]
    assert b"PGPASSWORD" in places[".agentrun/recorded/canary/default.yaml"]
    assert desk.leaks() == {}


def test_no_canary_is_recorded_by_the_plugin_for_vcrpy(desk: Desk, given: dict[str, str]) -> None:
    assert desk.run(environment=given, program=RECORD) == 0, desk.printed
    assert b"[redacted:PGPASSWORD]" in dict(desk.files())["vcr.yaml"]
    assert desk.leaks() == {}


@pytest.mark.parametrize("form", FORMS)
def test_search_finds_every_form(form: str) -> None:
    assert len(CREDENTIAL_NAMES) == 31
    assert len(FORMS) == 8
    for name, value in ENVIRONMENT.items():
        for text in FORMS[form](value):
            assert name in {found for found, _ in leaks(f"x{text}x".encode())}
