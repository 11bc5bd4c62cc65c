"""The recipes run as docs/recipes.md shows them: with a real server for the model, and one for the web application."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn

import agentrun

from .function_model import Answer, Messages, function_model

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs/recipes"
PAGE = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipes. Its runs are stored there."""
    shutil.copytree(RECIPES, tmp_path / "recipes", ignore=shutil.ignore_patterns(".agentrun", "__pycache__"))
    monkeypatch.chdir(tmp_path / "recipes")
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key")
    return tmp_path / "recipes"


@contextmanager
def model(monkeypatch: pytest.MonkeyPatch, answer: Any, hang: Event | None = None) -> Iterator[None]:
    with function_model(answer, hang) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        yield


def load(project: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", project / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def support(messages: Messages) -> Answer:
    """Looks up the order of the last message, and says how many messages of the user it has seen."""
    last = messages[-1]
    if last["role"] == "tool":
        asked = [each["content"] for each in messages if each["role"] == "user"]
        return f"{last['content']} (question {len(asked)})"
    return {"tool": "find_order", "args": {"number": re.findall(r"\d+", str(last["content"]))[-1]}}


# --- the page ---------------------------------------------------------------------------------------------------------


def test_page_shows_the_files() -> None:
    shown = dict(re.findall(r"<!-- recipes/([\w.]+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
    files = {
        path.name: path.read_text(encoding="utf-8") for path in RECIPES.iterdir() if path.suffix in (".py", ".yaml")
    }
    assert shown == files, "run `make docs`"
    assert "recipes/notebook.ipynb" in PAGE


# --- extraction -------------------------------------------------------------------------------------------------------


def test_extraction_of_many_texts(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four requests meet at the model, and there are never more."""
    four, at_once, most = Barrier(4), 0, 0

    def invoice(messages: Messages) -> Answer:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        customer = str(messages[1]["content"]).split()[-1]
        if customer in ("customer0", "customer1", "customer2", "customer3"):
            four.wait(60)
        at_once -= 1
        return (
            "no invoice" if customer == "nobody" else f'{{"customer": "{customer}", "total": 1.5, "currency": "EUR"}}'
        )

    extract = load(project, "extract")
    texts = [f"Invoice for customer{number}" for number in range(20)] + ["Nothing for nobody"]
    with model(monkeypatch, invoice):
        found = asyncio.run(extract.extract(texts, at_once=4))
    assert [each and each.customer for each in found] == [*(f"customer{number}" for number in range(20)), None]
    assert all(isinstance(each, extract.Invoice) for each in found[:20])
    assert most == 4
    assert "invoices" in capsys.readouterr().err


# --- a notebook -------------------------------------------------------------------------------------------------------


def test_notebook_runs_in_an_event_loop(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a kernel does: every cell runs in the same loop, may await, and shows the value of its last line."""
    cells = [
        "".join(cell["source"])
        for cell in json.loads((project / "notebook.ipynb").read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    names: dict[str, Any] = {"__name__": "__main__"}

    async def run_cells() -> list[object]:
        return [await run_cell(cell, names) for cell in cells]

    with model(monkeypatch, support):
        shown = asyncio.run(run_cells())
    assert shown[0] == "sent on Monday (question 1)"
    assert shown[1] == [("find_order", {"number": "1042"}, "sent on Monday")]
    assert capsys.readouterr().out == "waiting for payment (question 2)"


async def run_cell(cell: str, names: dict[str, Any]) -> object:
    tree = ast.parse(cell)
    if isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("shown", ast.Store())], last.value)
    code = compile(ast.fix_missing_locations(tree), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = eval(code, names)  # noqa: S307  # our own notebook
    if inspect.isawaitable(awaited):
        await awaited
    return names.pop("shown", None)


# --- pytest -----------------------------------------------------------------------------------------------------------


def test_tests_with_a_scripted_model(project: Path, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", str(project / "test_support.py"))
    result.assert_outcomes(passed=3)


# --- a worker ---------------------------------------------------------------------------------------------------------


def test_workers_resume_what_is_due_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule defers for a second here. Two workers look at the same time."""
    spec = project / "support.yaml"
    spec.write_text(spec.read_text().replace("until: 2h", "until: 1s"))
    worker = load(project, "worker")

    def refund(messages: Messages) -> Answer:
        if messages[-1]["role"] == "tool":
            return str(messages[-1]["content"])
        return {"tool": "refund", "args": {"number": "1042", "amount": 20.0}}

    async def work() -> list[agentrun.Outcome]:
        waiting = await agentrun.arun(spec, "20 back, please.", store=True)
        assert waiting.status == "suspended"
        found: list[agentrun.Outcome] = []
        async with agentrun.open(project) as first, agentrun.open(project) as second:
            for _ in range(1200):
                both = await asyncio.gather(worker.resume_due(first), worker.resume_due(second))
                found += [outcome for each in both for outcome in each]
                if found:
                    break
                await asyncio.sleep(0.05)
            assert await worker.resume_due(first) == await worker.resume_due(second) == []
        return found

    with model(monkeypatch, refund):
        (outcome,) = asyncio.run(work())
    assert outcome.text == "refunded 20.00 for order 1042"
    (journal,) = (project / ".agentrun").glob("runs/*/journal.jsonl")
    assert journal.read_text().count('"tool_started"') == 1


# --- a web application ------------------------------------------------------------------------------------------------


@contextmanager
def served(application: Any) -> Iterator[httpx.Client]:
    """The application behind its real server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application, log_level="error", lifespan="off"))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def test_web_application_has_a_session_for_each_user(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    application = load(project, "web_app").app
    with model(monkeypatch, support), served(application) as client:

        def send(user: str, text: str) -> Any:
            return client.post(f"/users/{user}/messages", json={"text": text}).json()["text"]

        assert send("ada", "Where is order 1042?") == "sent on Monday (question 1)"
        assert send("ben", "Where is order 1043?") == "waiting for payment (question 1)"
        assert send("ada", "And order 1043?") == "waiting for payment (question 2)"
        events = client.post("/users/ben/stream", json={"text": "And order 1042?"}).text
        assert client.post("/users/No User/messages", json={"text": "Hi"}).status_code == 422
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", events)
    assert json.loads(dict(found)["call"]) == {"tool": "find_order", "args": {"number": "1042"}}
    words = [json.loads(data) for name, data in found if name == "text"]
    assert len(words) > 3
    assert "".join(words) == "sent on Monday (question 2)"
    assert found[-1] == ("end", '"completed"')


def test_closed_connection_cancels_the_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    application = load(project, "web_app").app
    hang = Event()
    with model(monkeypatch, lambda messages: "one two three", hang), served(application) as client:
        with client.stream("POST", "/users/ada/stream", json={"text": "Hello"}) as reply:
            assert next(reply.iter_text()).startswith("event: text")
        for _ in range(600):
            journals = list((project / ".agentrun").glob("runs/*/journal.jsonl"))
            if journals and '"run_stopped"' in journals[0].read_text():
                break
            Event().wait(0.05)
    (journal,) = (project / ".agentrun").glob("runs/*/journal.jsonl")
    assert '"cancelled"' in journal.read_text().splitlines()[-1]
