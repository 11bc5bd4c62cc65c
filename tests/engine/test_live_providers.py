"""Live runs check routes, keys and addresses before they start, and reach the model over HTTP."""

import json
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest

import agentrun
from agentrun.core.facts import ModelAsked
from agentrun.core.package import Package
from agentrun.engine.live_providers import live_providers, live_sender
from agentrun.engine.memory import MemoryJournals
from agentrun.engine.settings import Settings
from agentrun.errors import AgentrunError, HostError, PackageError
from agentrun.net.client import make_client
from agentrun.providers.openai_chat import OpenAIChat
from agentrun.testing import scripted

from ..packages import ROUTE, package
from ..scripted_service import completion, failure
from ..servers import Server

CANARY = "canary-of-a-live-run"
USUAL = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}


def agent(*routes: dict[str, Any], **changes: Any) -> Package:
    return package(**{**changes, "model": {"routes": [ROUTE | route for route in routes], **changes.get("model", {})}})


def providers(what: Package) -> set[str]:
    settings = Settings()
    return {*live_providers(what, settings, live_sender(settings, make_client()))}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in USUAL.values():
        monkeypatch.delenv(name, raising=False)


def test_providers_of_all_routes_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in USUAL.values():
        monkeypatch.setenv(name, CANARY)
    names = [*USUAL, "openai-responses", "openai"]
    assert providers(agent(*({"provider": name} for name in names))) == {*names}


@pytest.mark.parametrize("provider", USUAL)
def test_missing_api_key_is_named(provider: str) -> None:
    with pytest.raises(HostError) as caught:
        providers(agent({"provider": provider}))
    assert (caught.value.code, caught.value.fields["name"]) == ("host.missing", USUAL[provider])


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ({"api_key": "${MY_KEY}"}, "MY_KEY"),
        ({"base_url": "${MY_BASE}/v1"}, "MY_BASE"),
        ({"base_url": "http://127.0.0.1:1", "headers": {"api-key": "${MY_HEADER}"}}, "MY_HEADER"),
    ],
)
def test_missing_variable_of_a_route_is_named(
    route: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with pytest.raises(HostError) as caught:
        providers(agent(route))
    assert caught.value.fields["name"] == name
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert providers(agent(route)) == {"openai"}


def test_keys_of_fallbacks_and_sub_agents_are_checked() -> None:
    here = {"base_url": "http://127.0.0.1:1"}
    assert providers(agent(here)) == {"openai"}
    for wanting in (agent(here, {}), agent(here, agents={"sub": msgspec.to_builtins(agent(here, {}))})):
        with pytest.raises(HostError, match="OPENAI_API_KEY"):
            providers(wanting)


def test_route_with_its_own_base_url_needs_no_key() -> None:
    assert providers(agent({"base_url": "http://127.0.0.1:1"})) == {"openai"}


def test_unknown_provider_is_not_found() -> None:
    with pytest.raises(HostError, match=r"provider\.not_found"):
        providers(agent({"provider": "oracle"}))


def test_setting_that_the_provider_does_not_support_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    with pytest.raises(PackageError) as caught:
        providers(agent({"provider": "anthropic", "name": "claude-haiku-4-5"}, model={"seed": 1}))
    assert caught.value.code == "package.invalid"
    assert any("seed" in problem for problem in caught.value.fields["problems"])


@pytest.mark.parametrize("value", ["localhost:8000", "ftp://a", "http://", "https://a:b", "http://[::1", "http://a\tb"])
def test_base_url_variable_that_is_no_address_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MY_BASE", f"{value}/{CANARY}")
    with pytest.raises(HostError) as caught:
        providers(agent({"base_url": "${MY_BASE}"}))
    assert caught.value.fields == {"name": "${MY_BASE}/chat/completions", "what": "address"}
    assert CANARY not in traceback_with_locals(caught.value)


@pytest.mark.parametrize("value", ["caf\u00e9", "a\x7fb", "line\nline"])
def test_key_that_does_not_fit_in_a_header_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", value + CANARY)
    with pytest.raises(HostError) as caught:
        providers(agent({}))
    assert caught.value.fields == {"name": "openai/gpt-4.1-mini", "variables": ["OPENAI_API_KEY"]}
    assert CANARY not in traceback_with_locals(caught.value)


# --- the whole --------------------------------------------------------------------------------------------------


def test_live_run_sends_the_key_and_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with Server(completion("Water.")) as server:
        monkeypatch.setenv("MY_BASE", server.url)
        outcome = agentrun.run(agent({"base_url": "${MY_BASE}/v1", "api_key": "${OPENAI_API_KEY}"}), "Fire!")
        assert server.is_quiet(), "its connections are closed"
    assert outcome.answer == "Water."
    (request,) = server.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {CANARY}"
    assert json.loads(request.body)["messages"][-1] == {"role": "user", "content": "Fire!"}


def test_env_file_gives_the_variables_of_a_live_run(tmp_path: Path) -> None:
    file = tmp_path / "keys.env"
    with Server(completion("Water.")) as server:
        file.write_text(f"MY_BASE={server.url}\n", encoding="utf-8")
        outcome = agentrun.run(agent({"base_url": "${MY_BASE}"}), "Fire!", env_file=file)
    assert outcome.answer == "Water."


def test_resume_asks_the_live_model_again() -> None:
    """A run that was cut off while it waited for the model goes on with the real one."""
    with Server(completion("Water.")) as server:
        what = agent({"base_url": server.url})
        whole = MemoryJournals()
        agentrun.run(what, "Fire!", model=scripted("Sand."), journals=whole)
        (run,) = whole.runs
        records = whole.records(run)
        asked = next(index for index, record in enumerate(records) if isinstance(record.fact, ModelAsked))
        cut = MemoryJournals()
        cut.restore(run, records[: asked + 1])
        outcome = agentrun.resume(run, package=what, journals=cut)
    assert outcome.answer == "Water."


def test_run_without_its_key_is_not_started() -> None:
    journals = MemoryJournals()
    with pytest.raises(HostError, match="OPENAI_API_KEY"):
        agentrun.run(agent({}), "Fire!", journals=journals)
    assert journals.runs == ()


def test_output_schema_of_the_call_is_checked_with_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    before = OpenAIChat.problems

    def spy(self: OpenAIChat, model: Any, route: Any, tools: Any, output: bool) -> list[str]:
        asked.append(output)
        return before(self, model, route, tools, output)

    monkeypatch.setattr(OpenAIChat, "problems", spy)
    with Server(completion("{}")) as server:
        what = agent({"base_url": server.url})
        agentrun.run(what, "Fire!", output={"type": "object"})
        agentrun.run(what, "Fire!")
    assert asked == [True, False]


def test_key_repeated_by_the_server_is_masked_everywhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the server repeats it."""
    monkeypatch.setenv("MY_KEY", CANARY)
    journals = MemoryJournals()
    with Server(failure(401, f"wrong key: {CANARY}")) as server, caplog.at_level("DEBUG"):
        what = agent({"base_url": server.url, "api_key": "${MY_KEY}"})
        outcome = agentrun.run(what, "Fire!", journals=journals)
    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.exit_code) == ("provider.fatal", 6)
    assert "wrong key: ***" in outcome.fault.message
    written = b"".join(journals.text(run) for run in journals.runs)
    assert CANARY.encode() not in written
    assert CANARY not in f"{outcome!r} {caplog.text}"
    assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}"


def test_engine_api_does_not_import_live_modules() -> None:
    """A run that does not go live pays for nothing of it."""
    code = (
        "import sys, agentrun.engine.api, agentrun.engine.models\n"
        "print([name for name in ('httpx', 'pydantic', 'agentrun.engine.live_providers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "[]"


def traceback_with_locals(error: AgentrunError) -> str:
    lines = list(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    return "\n".join([*lines, repr(error), str(vars(error)), str(error.__context__)])
