"""`validate`, `compile` and `render` import, start and fetch nothing of a project."""

from pathlib import Path

import pytest

from ..measured_commands import SCRIPT, run
from ..projects import agent, write_project

AUDIT = """
import sys
forbidden = ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto", "subprocess.Popen", "os.exec",
             "os.posix_spawn", "os.system", "os.fork", "os.spawn", "urllib.Request", "ctypes.dlopen")
project = ("shop", "trap", "refunds", "hooked")

def hook(event, args):
    if event.startswith(forbidden) or (event == "import" and str(args[0]).split(".")[0] in project):
        raise SystemExit(99)
"""


def script_with_audit_hook(script: str = "") -> str:
    """The script of a batch in which nothing may be started, fetched or imported from a project."""
    ready = "cases = json.loads(sys.stdin.read())"
    return AUDIT + SCRIPT.replace(ready, f"{ready}\nsys.addaudithook(hook)\n{script}")


TRAP = "import pathlib\npathlib.Path('imported').touch()\n"


def project_with_traps(folder: Path) -> Path:
    text = """\
params: {p: {type: string, default: x}}
instructions: {file: p.md}
policy: {default: deny, rules: [{id: r, allow: [t, h, s, a, "m.*"], when: "params.p == 'x'"}]}
tools:
  t: {kind: python, call: "trap.inner:f"}
  h: {kind: http, description: d, url: "http://169.254.169.254/", private_network: true, auth: {secret: "${TOKEN}"}}
  s: {kind: shell, description: d, argv: [touch, imported]}
  m: {kind: mcp, command: [touch, imported]}
  a: {kind: agent, spec: child.yaml, description: d}
hooks: [{id: h, at: on_stop, call: "hooked:h"}]
sinks: {s: {kind: http, url: "http://127.0.0.1:1/", private_network: true}}
"""
    return write_project(
        folder,
        {
            "spec.yaml": agent(text),
            "child.yaml": agent(),
            "p.md": "Hello {{ p }}",
            "trap/__init__.py": TRAP,
            "trap/inner.py": TRAP + "def f(a: int):\n    'd'\n",
            "hooked.py": TRAP + "def h(question): pass\n",
        },
    )


def test_nothing_is_imported_started_or_fetched(tmp_path: Path) -> None:
    project_with_traps(tmp_path)
    repository = Path(__file__).parents[2]
    cases = [
        (tmp_path, args)
        for args in (["validate", "."], ["compile", "spec.yaml"], ["render", "spec.yaml"], ["validate", "--json", "."])
    ]
    cases += [
        (repository, [command, f"specs/{name}.yaml"])
        for command in ("validate", "compile", "render")
        for name in ("support", "ops", "triage")
    ]
    for (_, args), ran in zip(cases, run(cases, script=script_with_audit_hook()), strict=True):
        assert (ran.code, ran.err.count("spec.")) == (0, 0), (args, ran.output)
    assert not list(tmp_path.rglob("imported"))
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    "planted",
    [
        "sys.path.insert(0, cases['cases'][0][0]); import trap",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
    ],
)
def test_audit_hook_detects_imports_processes_and_connections(tmp_path: Path, planted: str) -> None:
    """The twin: a command that did such a thing would be caught."""
    project_with_traps(tmp_path)
    with pytest.raises(AssertionError):
        run([(tmp_path, ["validate", "."])], script=script_with_audit_hook(planted))
