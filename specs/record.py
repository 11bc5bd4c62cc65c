"""Record the cassettes of the example agents again: `make cassettes`.

The scripted provider plays the model: it speaks the real wire format over a real socket. Tools run for real.
`specs/local.yaml` is recorded with a real, small model, if `make model` has installed one.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
AGENTRUN = str(Path(sys.executable).with_name("agentrun"))
MODEL = ROOT / ".venv-model" / "bin" / "python"
SERVER = ROOT / "tests" / "real_model" / "serve.py"
PORT = "8391"

# Which script plays the model in which case.
SCRIPTS = {
    "support": {
        "default": "default",
        "approval": "approval",
        "denial": "approval",
        "twice": "twice",
        "us": "us",
        "conversation": "conversation",
        "retry": "retry",
        "lost": "lost",
    },
    "triage": {"default": "default", "approval": "press", "denial": "press", "retry": "retry", "broken": "broken"},
    "ops": {
        "default": "default",
        "approval": "restart",
        "denial": "restart",
        "other": "other",
        "crowd": "crowd",
        "retry": "retry",
        "unanswered": "restart",
    },
    "researcher": {"default": "default", "approval": "note", "denial": "note", "retry": "retry"},
    "reader": {"default": "alone", "other": "other"},
}
# The sub-agent whose model has a script of its own. It asks Anthropic, its parent asks OpenAI.
CHILDREN = {"researcher": "reader"}


@contextmanager
def serving(argv: list[str], ready: str) -> Iterator[str]:
    """Run a server, and yield the first line that it prints."""
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        assert line.startswith(ready), f"{argv[0]} did not start"
        yield line
    finally:
        server.kill()
        server.wait()


def record(spec: str, case: str, **environment: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the servers of tools run in this Python
        clean = {"PATH": path, "HOME": folder, "SHOP_LEDGER": str(Path(folder, "ledger.jsonl"))}
        command = [AGENTRUN, "test", f"specs/{spec}.cases.yaml::{case}", "--record", "all", "--yes", "--update"]
        done = subprocess.run(command, cwd=ROOT, env=clean | environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{spec}/{case} was not recorded\n{done.stdout}{done.stderr}")


def provider(agent: str, script: str) -> list[str]:
    return [AGENTRUN, "provider", str(ROOT / "specs" / "scripts" / f"{agent}.{script}.provider.yaml")]


def main() -> None:
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "not-a-key")
    for spec, cases in SCRIPTS.items():
        for case, script in cases.items():
            own, below = provider(spec, script), provider(CHILDREN.get(spec, spec), script)
            with serving(own, "http://") as url, serving(below, "http://") as child:
                record(spec, case, **keys, OPENAI_BASE_URL=f"{url}/v1", ANTHROPIC_BASE_URL=child)
            sys.stdout.write(f"recorded {spec}/{case}\n")
    if not MODEL.exists():
        sys.stdout.write("skipped local: there is no model; `make model` installs one\n")
        return
    with serving([str(MODEL), str(SERVER), PORT], "ready"):
        for case in ("default", "question"):
            record("local", case, LOCAL_MODEL_URL=f"http://127.0.0.1:{PORT}/v1")
            sys.stdout.write(f"recorded local/{case}\n")


if __name__ == "__main__":
    main()
