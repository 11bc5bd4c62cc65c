"""`agentrun cassette show`: a cassette or one interaction as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentrun.cassette.writer import dump_cassette

from ..report.interactions import INTERACTIONS, KEY, make_interaction
from .command import ROOT, agentrun
from .desk_project import CASSETTE, cassette, edit

DESK = """\
cassettes/desk/default.yaml: 7 interactions (4 model, 2 tool, 1 other)
  case default of specs/desk.yaml
  recorded 2026-01-31T12:00:00Z (10 days ago) by agentrun 0.1.0
  from https://api.openai.com/v1, sent to 127.0.0.1 by OPENAI_BASE_URL (a scripted provider: no model was asked)
  fingerprint sha256:…

1  line 35, at 0.000s for 0.040s: model openai gpt-4.1-mini, 1 message, 2 tools
   → text “I look it up.”; calls lookup_order(id="1042"); 10 in, 5 out tokens
2  line 133, at 0.100s for 0.040s: tool lookup_order(id="1042")
   → {"id":"1042","total":39.9}
3  line 155, at 0.200s for 0.040s: model openai gpt-4.1-mini, 3 messages, 2 tools
   → 429, retry-after 0: the script has this fault before turn 2 (provider.rate_limited)
4  line 208, at 0.300s for 0.040s: model openai gpt-4.1-mini, 3 messages, 2 tools
   → calls refund(amount=20.5, order_id="1042"); 10 in, 5 out tokens
5  line 250, at 0.400s for 0.040s: approval of refund(amount=20.5, order_id="1042") because “A person signs off.”
   → approved by --approve all
6  line 283, at 0.500s for 0.040s: tool refund(amount=20.5, order_id="1042")
   → 20.50 of order 1042 is paid back
7  line 306, at 0.600s for 0.040s: model openai gpt-4.1-mini, 5 messages, 2 tools
   → text “Done, 20.50 is paid back.”; 10 in, 5 out tokens
"""


def without_fingerprint(text: str) -> str:
    return "".join(
        "  fingerprint sha256:…\n" if line.startswith("  fingerprint ") else line
        for line in text.splitlines(keepends=True)
    )


def test_show_describes_every_interaction(desk: Path) -> None:
    done = cassette(desk, "show", CASSETTE)
    assert (done.code, without_fingerprint(done.out), done.err) == (0, DESK, "")


def test_shipped_cassettes_can_be_shown() -> None:
    for path in (ROOT / "cassettes").rglob("*.yaml"):
        done = agentrun("cassette", "show", path, cwd=Path("/"))
        assert done.code == 0
        assert "\n1  line " in done.out.replace("\n 1  ", "\n1  ")


def test_json_has_one_object_per_interaction(desk: Path) -> None:
    about, *lines = cassette(desk, "show", CASSETTE, "--json").lines()
    assert about["metadata"]["case"] == "default"
    assert [line["kind"] for line in lines] == ["model", "tool", "model", "model", "approval", "tool", "model"]
    assert lines[2] == {
        "n": 3,
        "line": 155,
        "kind": "model",
        "asked": "model openai gpt-4.1-mini, 3 messages, 2 tools",
        "answered": "429, retry-after 0: the script has this fault before turn 2 (provider.rate_limited)",
        "start": 200,
        "end": 240,
        "path": "",
        "status": 429,
        "failure": None,
    }


def test_one_interaction_is_shown_in_full(desk: Path) -> None:
    done = cassette(desk, "show", CASSETTE, "--n", "4")
    assert done.code == 0
    head, _, rest = done.out.partition("request: ")
    assert head == "".join(line for line in DESK.splitlines(keepends=True)[12:14])
    for text in (
        "POST https://api.openai.com/v1/chat/completions\n",
        "  instructions:\n    Look an order up before you answer.\n",
        "  user:\n    Please refund 20 of order 1042.\n",
        '  assistant:\n    I look it up.\n    calls lookup_order {"id":"1042"}\n',
        '  tool:\n    lookup_order returned {"id":"1042","total":39.9}\n',
        "  tool refund:\n",
        '      "temperature": 0\n',
        'reply: 200\n  content-type: text/event-stream\n  calls refund {"amount":20.5,"order_id":"1042"}\n',
    ):
        assert text in rest
    (line,) = cassette(desk, "show", CASSETTE, "--n", "4", "--json").lines()
    assert "\n".join(line["whole"]) in done.out


@pytest.mark.parametrize("number", ["0", "8", "x"])
def test_missing_interaction_number_is_refused(desk: Path, number: str) -> None:
    assert cassette(desk, "show", CASSETTE, "--n", number).code == 2


def test_damaged_cassette_is_an_error_with_its_line(desk: Path) -> None:
    edit(desk / CASSETTE, "version: 1", "version: 2")
    done = cassette(desk, "show", CASSETTE)
    assert (done.code, done.out) == (3, "")
    assert "cassette.damaged" in done.err
    assert cassette(desk, "show", CASSETTE, "--json").lines()[0]["error"]["fields"]["line"] == 1


def test_missing_file_or_folder_is_refused(desk: Path) -> None:
    assert cassette(desk, "show", "cassettes/none.yaml").code == 2
    assert cassette(desk, "show", "cassettes").code == 2


def test_every_kind_of_interaction_is_shown(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        dump_cassette([each for each, _, _ in INTERACTIONS.values()], {}), encoding="utf-8"
    )
    done = cassette(tmp_path, "show", "all.yaml")
    assert done.code == 0
    head, _, body = done.out.partition("\n\n")
    counts = "24 interactions (9 model, 7 tool, 1 http, 7 other)"
    assert head == f"all.yaml: {counts}\n  recorded at an unknown time"
    lines = body.splitlines()
    assert len(lines) == 2 * len(INTERACTIONS)
    told = [
        (first.partition(": ")[2], second.partition("→ ")[2])
        for first, second in zip(lines[::2], lines[1::2], strict=True)
    ]
    for (name, (_, question, answer)), (shown, replied) in zip(INTERACTIONS.items(), told, strict=True):
        start, dots, _ = answer.partition("…")
        assert (shown, replied.startswith(start) if dots else replied) == (question, True if dots else answer), name
    assert lines[-2].startswith("    24  line ")
    assert ", at 0.005s: in c2.0.c1.1" in lines[-2]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    long = make_interaction("tool://f", {"a": "x" * 5000}, ("y" * 300_000 + "\n" + "z\n" * 10).encode())
    path = tmp_path / "long.yaml"
    path.write_text(
        dump_cassette(
            [replace(long, path="c" * 5000)], {"note": "n" * 5000, "history": [{"at": str(n)} for n in range(500)]}
        )
    )
    done = cassette(tmp_path, "show", path)
    assert max(map(len, done.out.splitlines())) < 600
    assert len(done.out.splitlines()) < 120
    whole = cassette(tmp_path, "show", path, "--n", "1")
    assert len(whole.out) < 120_000
    assert "more characters" in whole.out


def test_history_params_and_profile_are_shown(desk: Path) -> None:
    edit(
        desk / CASSETTE,
        "  params: {}\n",
        "  params: {order: 7}\n  profile: ci\n  history:\n  - {at: then, pruned: 2}\n",
    )
    out = cassette(desk, "show", CASSETTE).out
    for line in (
        '  params {"order": 7}',
        "  case default of specs/desk.yaml, profile ci",
        '  changed {"at": "then", "pruned": 2}',
    ):
        assert f"{line}\n" in out


def test_metadata_of_any_shape_is_shown_without_credentials(desk: Path) -> None:
    """Other tools may write what they like there."""
    edit(
        desk / CASSETTE,
        "  params: {}\n",
        f"  params: [1, {{api_key: 9f8a7b6c5d4e3f2a1b0c}}]\n  history: 7\n  note: [[{KEY}]]\n",
    )
    for args in ([], ["--json"]):
        done = cassette(desk, "show", CASSETTE, *args)
        assert done.code == 0
        assert KEY not in done.out
    assert json.dumps("9f8a7b6c5d4e3f2a1b0c") not in cassette(desk, "show", CASSETTE, "--json").out
