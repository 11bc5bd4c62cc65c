"""Attack 89, user code that changes limits of the interpreter, in whole runs of the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentrun.core.facts import ToolFinished
from agentrun.core.messages import text_of
from agentrun.journal.storage import read_journal_file

from ..cli.command import CommandResult, agentrun
from ..cli.shop_project import Project

DESK = '''\
import locale, os, signal, sys, threading, time

def lower_limit():
    """To the lowest that Python takes here."""
    for limit in range(5, 500):
        try:
            sys.setrecursionlimit(limit)
            return
        except RecursionError:
            pass

def state() -> dict[str, object]:
    "Says what user code can change."
    mask = os.umask(0)
    os.umask(mask)
    handlers = {each.name: repr(signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    return {
        "recursion": sys.getrecursionlimit(), "digits": sys.get_int_max_str_digits(),
        "switch": sys.getswitchinterval(), "cwd": os.getcwd(), "umask": mask,
        "locale": locale.setlocale(locale.LC_ALL), "handlers": handlers,
    }

def low() -> str:
    "Lowers the recursion limit."
    lower_limit()
    return "low"

def low_and_slow() -> str:
    "Lowers it, and takes its time."
    lower_limit()
    time.sleep(0.3)
    return "slow"

def low_in_a_thread() -> str:
    "Lowers it in a thread that knows nothing of the call."
    thread = threading.Thread(target=lower_limit)
    thread.start()
    thread.join()
    time.sleep(0.1)
    return "thread"

async def async_low() -> str:
    "Lowers it on the event loop."
    lower_limit()
    return "async"

def high() -> str:
    "Raises it, and needs it."
    sys.setrecursionlimit(20_000)
    def down(n: int) -> int:
        return 0 if n == 0 else 1 + down(n - 1)
    return str(down(10_000))

def elsewhere() -> str:
    "Goes to another place, language and mask."
    os.chdir("/")
    os.umask(0o777)
    locale.setlocale(locale.LC_ALL, "C")
    sys.set_int_max_str_digits(0)
    sys.setswitchinterval(1)
    return "elsewhere"

async def deaf() -> str:
    "Hears no signals."
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(each, signal.SIG_IGN)
    return "deaf"

def hook(question):
    "Does all of it."
    lower_limit()
    elsewhere()

def assertion(run) -> None:
    lower_limit()
    elsewhere()
    sys.setrecursionlimit(20_000)
    assert run.output == "All survived."

def is_as_before(run) -> None:
    found = state()
    assert (found["cwd"], found["recursion"]) == (os.path.dirname(os.path.abspath(__file__)), 1000), found
    assert found["umask"] != 0o777
'''
WILD = {
    "low_and_slow": "slow",
    "low": "low",
    "low_in_a_thread": "thread",
    "async_low": "async",
    "high": "10000",
    "elsewhere": "elsewhere",
    "deaf": "deaf",
}
"""Tools that change something, and what they return."""
SPEC = """\
agentrun: "1"
name: shop
model: {provider: openai, name: gpt-4.1-mini}
instructions: Try everything.
input: Go.
policy: {default: allow}
budgets: {turns: 100, tokens: 1M, time: 5m}
guards: {repeated_call: off, repeated_batch: off}
tools:
"""


def project(folder: Path, more: str = "") -> Project:
    shop = Project(folder)
    lines = [f'  {name}: {{kind: python, call: "desk:{name}", effect: read}}\n' for name in ("state", *WILD)]
    shop.spec.write_text(SPEC + "".join(lines) + more, encoding="utf-8")
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    return shop


def record_calls(shop: Project, *turns: list[str]) -> tuple[CommandResult, list[str]]:
    """A run in which the model makes these calls, those of one turn together; and what they gave."""
    calls = [{"calls": [{"tool": name, "args": {}} for name in names]} for names in turns]
    story = json.dumps({"agentrun": "1", "turns": [*calls, {"text": "All survived."}]})
    with shop.provider(story) as (_, environment):
        done = shop.run("--mode", "record", "--journal", "run.jsonl", **environment, LC_ALL="C.UTF-8")
    facts: list[Any] = [record.fact for record in read_journal_file(shop.root / "run.jsonl")]
    return done, [text_of(fact.parts) for fact in facts if isinstance(fact, ToolFinished)]


def test_process_state_is_restored_after_each_tool(tmp_path: Path) -> None:
    """One after the other, each followed by a look at the process."""
    done, texts = record_calls(project(tmp_path), ["state"], *([each] for name in WILD for each in (name, "state")))
    assert (done.code, done.out) == (0, "All survived.\n"), done.err
    before, *others = texts
    assert others[0::2] == list(WILD.values())
    for name, after in zip(WILD, others[1::2], strict=True):
        assert json.loads(after) == json.loads(before), name
    assert json.loads(before)["cwd"] == str(tmp_path)


def test_process_state_is_restored_after_parallel_tools(tmp_path: Path) -> None:
    """Results arrive while a tool that has lowered the limit is still running."""
    done, texts = record_calls(project(tmp_path), ["state"], [*WILD], ["state"])
    assert (done.code, done.out) == (0, "All survived.\n"), done.err
    assert sorted(texts[1:-1]) == sorted(WILD.values())
    assert json.loads(texts[-1]) == json.loads(texts[0])


def test_process_state_is_restored_after_a_hook(tmp_path: Path) -> None:
    shop = project(tmp_path, 'hooks:\n  - {id: wild, at: before_tool, call: "desk:hook"}\n')
    done, texts = record_calls(shop, ["state"], ["state"])
    assert (done.code, done.out) == (0, "All survived.\n"), done.err
    assert [json.loads(text)["cwd"] for text in texts] == [str(tmp_path)] * 2
    assert [json.loads(text)["recursion"] for text in texts] == [1000] * 2


def test_process_state_is_restored_after_an_assertion(tmp_path: Path) -> None:
    """When its module is imported, and when it is called."""
    shop = project(tmp_path)
    done, _ = record_calls(shop, ["low"])
    assert done.code == 0, done.err
    checks = "[{type: python, value: 'desk:assertion'}, {type: python, value: 'desk:is_as_before'}]"
    text = f'agentrun: "1"\ncases:\n  - {{name: default, assert: {checks}}}\n'
    (tmp_path / "desk.py").write_text(DESK + "\nelsewhere()\nsys.setrecursionlimit(20_000)\n", encoding="utf-8")
    (tmp_path / "shop.cases.yaml").write_text(text, encoding="utf-8")
    tested = agentrun("test", cwd=tmp_path)
    assert tested.code == 0, tested.out + tested.err
