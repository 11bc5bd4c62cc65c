"""The same run in every wire format, streamed and not, has the same canonical journal.

The model thinks, asks for two calls at once, is told to wait (429), breaks the output contract, is shown the mistake,
and answers. Its thoughts must come back where the format has a place for them: the provider's script insists.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.testing import stub
from agentrun.testing.provider import ScriptedProvider

from .live_runs import Live, live

FOLDER = Path(__file__).parent
JOURNAL = FOLDER / "orders.journal"
STATES = {"1042": "shipped on Monday", "1043": "lost at sea"}
KEYS = {
    "openai": ("authorization", "Bearer story-key"),
    "openai-responses": ("authorization", "Bearer story-key"),
    "anthropic": ("x-api-key", "story-key"),
    "gemini": ("x-goog-api-key", "story-key"),
}


def run_with(server: ScriptedProvider, provider: str, stream: bool) -> Live:
    settings = {"model.provider": provider, "model.stream": str(stream).lower()}
    environment = {"STORY_URL": server.url, "STORY_KEY": "story-key"}
    return live(FOLDER / "orders.yaml", settings, environment, {"lookup_order": stub(lambda id: STATES[id])})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", KEYS)
def test_every_format_gives_the_same_canonical_journal(provider: str, stream: bool) -> None:
    with ScriptedProvider(FOLDER / "orders.provider.yaml") as server:
        run = run_with(server, provider, stream)
    assert run.outcome.answer == '{"shipped":["1042"],"lost":["1043"]}', run.outcome.fault
    assert [(seen.provider, seen.turn, seen.status) for seen in server.requests] == [
        (provider, 1, 200),
        (provider, 2, 429),
        (provider, 2, 200),
        (provider, 3, 200),
    ]
    assert run.story(f"{provider}/story-1") == JOURNAL.read_text(encoding="utf-8")
    header, key = KEYS[provider]
    assert {seen.headers[header] for seen in server.requests} == {key}
    if stream:
        assert (
            "".join(run.heard)
            == 'I look them up.{"shipped":["1042"],"lost":"1043"}{"shipped":["1042"],"lost":["1043"]}'
        )
    else:
        assert run.heard == ()
