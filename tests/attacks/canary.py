"""Secrets of many shapes, a project whose tools and provider leak them, and a search for them in output and files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

import yaml

from ..cli import forked_command
from ..cli.command import SCRIPT, start

KEY = "sk-proj-Canary0123456789abcdefGHIJ"
LINES = [
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDu",
    "Qm9Zr2/canary==",
]
PAIR = "svc:Wq7-canary-pair"
SERVICE = {
    "client_id": "shop",
    "client_secret": 'inner\ncanary\\of "json"',
    "refresh": {"token": "1//0g-canary-refresh"},
}

SECRETS = {
    "OPENAI_API_KEY": KEY,
    "ROUTE_KEY": "kx/With+slash==&=canary?#%41",
    "TENANT_TOKEN": 'ten"ant\\canary\\u0041 <&>',
    "BASIC_CREDENTIALS": "Basic " + b64encode(PAIR.encode()).decode(),
    "DB_PASSWORD": "pässwörd-漢字-🔑-canary",
    "SIGNING_SECRET": f"begin.{KEY}.end-canary",
    "TLS_PRIVATE_KEY": "\n".join(["-----BEGIN PRIVATE KEY-----", *LINES, "-----END PRIVATE KEY-----"]),
    "HOOK_SECRET": "tab\there'quote\"/slash\\canary",
    "PIN_PASSWORD": "8401739265",
    "SERVICE_CREDENTIALS": json.dumps(SERVICE, indent=1),
    "LONG_TOKEN": "".join(f"Lt{n:03d}" for n in range(80)),
    "VAULT_PASSPHRASE": "correct horse canary staple",
}
"""What the environment holds. A thirteenth is the password in OPENAI_BASE_URL."""
URL_PASSWORD = "url-pa55~canary"  # planted

SECRET_PARTS = {
    "the pair": PAIR,
    "the password of the pair": PAIR.partition(":")[2],
    "the password of the address": URL_PASSWORD,
    "a value inside JSON": SERVICE["client_secret"],
    "a value deep inside JSON": "1//0g-canary-refresh",
    **{f"line {n} of the private key": line for n, line in enumerate(LINES, 1)},
}
"""What is as secret as the whole."""


def escape_all(value: str) -> str:
    """In JSON, with nothing but escapes."""
    units = value.encode("utf-16-be")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def encodings_of(value: str) -> Iterator[str]:
    """A value as it may be written."""
    raw = value.encode()
    once = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    yield from (value, *once, *(json.dumps(text)[1:-1] for text in once), repr(value)[1:-1])
    yield from (quote(value), quote(value, safe=""), quote_plus(value), raw.hex(), raw.hex().upper())
    yield escape_all(value)
    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            text = encode(b"x" * before + raw).decode().rstrip("=")
            yield text[2 if before else 0 : -2]


SPELLINGS = {
    text.encode(): name
    for name, value in {**SECRET_PARTS, **SECRETS}.items()
    for text in encodings_of(str(value))
    if len(text) > 7
}


def leaks(data: bytes) -> set[str]:
    """The names of the secrets in some bytes, also for who reads them as lines of JSON."""
    said = b"\0".join([data, *("\n".join(_texts(line)).encode("utf-8", "replace") for line in data.splitlines())])
    return {name for text, name in SPELLINGS.items() if text in said}


def _texts(data: object) -> Iterator[str]:
    """The texts in a document, and in the documents that are texts in it."""
    match data:
        case bytes() | str():
            try:
                yield from _texts([json.loads(data)])
            except (ValueError, RecursionError):
                yield data if isinstance(data, str) else ""
        case list():
            for item in data:
                yield from [item, *_texts(item)] if isinstance(item, str) and not item.isdigit() else _texts(item)
        case dict():
            yield from _texts([*data, *data.values()])
        case int():
            yield str(data)


ALL = "\n".join([*SECRETS.values(), URL_PASSWORD, PAIR])
"""All of them in one text."""

SPEC = """\
agentrun: "1"
name: canary
model:
  provider: openai
  name: gpt-4.1-mini
  stream: true
  headers: {x-tenant: "${TENANT_TOKEN}", x-basic: "${BASIC_CREDENTIALS}"}
  fallback: [{provider: openai, name: gpt-4.1, api_key: "${ROUTE_KEY}"}]
instructions: "You are {{ who }}. {{ number }}"
params: {who: {type: string, default: nobody}, number: {type: integer, default: 1}}
input: "Hello"
tools:
  leak: {kind: python, call: "desk:leak", effect: read}
  note: {kind: python, call: "desk:note"}
policy:
  default: allow
  rules: [{id: money, ask: note, reason: money}]
limits: {tool_timeout: 20s}
guards: {repeated_call: off, repeated_batch: off}
budgets: {turns: 30, time: 5m}
"""
DESK = '''\
"""Tools that give away all they can find."""
import base64, json, os, sys
from urllib.parse import quote, quote_plus

NAMES = %(names)r

def _all() -> str:
    return "\\n".join([*(os.environ[name] for name in NAMES), %(more)r])

def leak(how: str, echo: str | int = "") -> object:
    """Gives everything away."""
    text = _all()
    match how:
        case "plain":
            return text
        case "object":
            number = int(os.environ["PIN_PASSWORD"])
            return {"found": {name: os.environ[name] for name in NAMES}, text: [text], "number": number}
        case "json":
            return json.dumps({"deep": json.dumps({"deeper": json.dumps(text)})})
        case "base64":
            return " ".join(base64.b64encode(("x" * n + text).encode()).decode() for n in range(3))
        case "each":
            values = [os.environ[name].encode() for name in NAMES]
            ways = base64.b64encode, base64.urlsafe_b64encode
            return [[encode(value).decode() for encode in ways] for value in values]
        case "url":
            return quote(text) + " " + quote(text, safe="") + " " + quote_plus(text)
        case "hex":
            return text.encode().hex() + " " + text.encode().hex().upper()
        case "escaped":
            units = text.encode("utf-16-be")
            return '"' + "".join(f"\\\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2)) + '"'
        case "printed":
            print(text)
            print(json.dumps(text), file=sys.stderr)
            print("x" * 60000 + " " + text * 9)
            return "printed"
        case "raised":
            raise RuntimeError(text)
        case "raised at the cut":
            raise RuntimeError("y" * 260 + " " + os.environ[NAMES[int(str(echo))]])
        case "repr":
            raise ValueError(repr(text))
        case "key":
            return {}[text]
        case "long":
            return "z" * 25500 + text * 40 + "z" * 25500
        case "line by line":
            return {str(n): line for n, line in enumerate(text.splitlines())}
    return None

def note(text: str) -> str:
    """Writes something down."""
    return "noted " + text
'''
HOWS = (
    "plain", "object", "json", "base64", "each", "url", "hex", "escaped", "printed", "raised", "repr", "key",
    "long", "line by line",
)  # fmt: skip


class Trap:
    """A project in which everything says secrets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: dict[str, bytes] = {}
        """What each command said, on both streams."""
        desk = DESK % {"names": tuple(SECRETS), "more": f"{URL_PASSWORD}\n{PAIR}"}
        (root / "canary.yaml").write_text(SPEC, encoding="utf-8")
        (root / "desk.py").write_text(desk, encoding="utf-8")
        (root / "pyproject.toml").write_text('[tool.agentrun]\nsecrets = ["PIN_PASSWORD"]\n', encoding="utf-8")
        (root / "approvals.yaml").write_text("note: approved\n", encoding="utf-8")
        wrong = f"note: {json.dumps(SECRETS['HOOK_SECRET'])}\n{json.dumps(KEY)}: approved\n"
        (root / "wrong.yaml").write_text(wrong, encoding="utf-8")
        (root / "letter.txt").write_text(f"Dear all,\n{ALL}\n", encoding="utf-8")
        self.mine = {path.name for path in root.iterdir()}
        """What the user wrote."""

    def run(self, name: str, *args: str, environment: Mapping[str, str], program: str | None = None) -> int:
        """A command, or a program in its place, with both streams in pipes."""
        env = self._environment(environment)
        if forked_command.can_fork(environment):
            done = forked_command.run(args, self.root, env, b"", 120, program)
        else:
            command = [SCRIPT, *args] if program is None else [sys.executable, "-c", program, *args]
            done = subprocess.run(command, cwd=self.root, env=env, capture_output=True, check=False, timeout=120)
        self.said[name] = done.stdout + b"\n" + done.stderr
        assert b"Traceback" not in done.stderr, done.stderr[-3000:]
        return done.returncode

    def in_terminal(self, name: str, *args: str, environment: Mapping[str, str]) -> int:
        """The same in a terminal."""
        ours, theirs = pty.openpty()
        given = {"TERM": "xterm", **environment}
        running = start(*args, cwd=self.root, environment=given, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 65536):
                said += data
        except OSError:  # nobody holds the other end any more
            pass
        os.close(ours)
        self.said[name] = said
        return running.wait()

    @staticmethod
    def _environment(given: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], **given}

    def leaks(self) -> dict[str, set[str]]:
        """Where secrets are: in what was said, and in every file but the user's own and their bytecode."""
        files = {
            path.relative_to(self.root).as_posix(): path.read_bytes() + path.name.encode()
            for path in self.root.rglob("*")
            if path.is_file() and path.name not in self.mine and path.suffix != ".pyc"
        }
        return {place: found for place, data in {**self.said, **files}.items() if (found := leaks(data))}


def environment(url: str) -> dict[str, str]:
    """All secrets, and a provider behind an address with a password."""
    return {**SECRETS, "OPENAI_BASE_URL": url.replace("://", f"://svc:{URL_PASSWORD}@") + "/v1"}


def story(**changes: object) -> str:
    """A provider that repeats everything in every place it has."""
    headers = {"set-cookie": f"session={KEY}", "x-request-id": SECRETS["LONG_TOKEN"], "retry-after": "0"}
    refusal = {"error": {"message": f"No: {ALL}", "code": KEY, "param": ALL}}
    faults = [
        {"status": 429, "headers": headers, "body": refusal},
        {"status": 500, "headers": headers, "body": f"<html>{ALL}</html>", "content_type": "text/html"},
    ]
    calls = [{"calls": [{"tool": "leak", "args": {"how": how, "echo": ALL}}], "chunk": 3} for how in HOWS]
    cuts = [{"tool": "leak", "args": {"how": "raised at the cut", "echo": n}} for n in range(len(SECRETS))]
    raw = f'{{"text": "{escape_all(ALL)}"}}'
    turns = [
        {"text": f"I know: {ALL}", "chunk": 1, "faults": faults, **calls[0]},
        *calls[1:],
        {"calls": cuts[:8]},
        {"calls": cuts[8:]},
        {"calls": [{"tool": "leak", "args": {"how": "number", "echo": int(SECRETS["PIN_PASSWORD"])}}]},
        {"calls": [{"tool": "note", "raw": raw}], "text": json.dumps(ALL), "reasoning": ALL},
        {"text": f"All: {ALL} and {json.dumps(ALL)}", "chunk": 7, **changes},
    ]
    return yaml.safe_dump({"agentrun": "1", "turns": turns}, allow_unicode=True)
