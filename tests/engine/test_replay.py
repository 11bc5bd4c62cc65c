"""Whole replays, from a package and a cassette file to an outcome and a journal."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.canonical_json import fingerprint
from agentrun.cassette.conversion import converted_text
from agentrun.cassette.file import load_cassette
from agentrun.cassette.player import Player
from agentrun.compiler.package_file import seal_package
from agentrun.core.evolve import fold
from agentrun.core.facts import ModelAsked, RetryPlanned, fact_kind
from agentrun.core.messages import Usage
from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.engine.request import Request
from agentrun.engine.run import FinishedRun, replay_run
from agentrun.errors import AgentrunError, CassetteError, HostError, PackageError, RequestError
from agentrun.journal.canonical import canonical

from ..packages import BASE, ROUTE, package, typed
from ..replays import replay_package
from ..scripted_service import BAD, GOOD, ScriptedSender, completion, failure, live, record


def replay(agent: Package, cassette: Path, message: str | None = None, **params: Any) -> FinishedRun:
    return replay_package(agent, cassette, message, params)


@pytest.fixture
def cassette_path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.yaml"


def test_replay_gives_the_recorded_answer_and_is_marked_as_replayed(cassette_path: Path) -> None:
    agent = package()
    done = replay(agent, record(cassette_path, agent, completion("Call the fire brigade.")))
    outcome = done.outcome
    assert (outcome.status, outcome.answer, outcome.code) == ("completed", "Call the fire brigade.", None)
    assert outcome.replayed, "a replayed outcome says that it is one"
    assert (outcome.output, outcome.turns, outcome.usage) == (None, 1, Usage(20, 5, 0, 0))
    assert (done.exit_code, done.unused_error) == (0, None)


def test_replay_of_typed_output_with_a_repair(cassette_path: Path) -> None:
    agent = typed()
    done = replay(agent, record(cassette_path, agent, completion(BAD), completion(GOOD)))
    assert done.outcome.output == {"queue": "hardware", "urgent": True}
    assert (done.outcome.turns, done.exit_code) == (2, 0)


def test_replay_journal_has_the_recorded_times(cassette_path: Path) -> None:
    agent = typed()
    done = replay(agent, record(cassette_path, agent, completion(BAD), completion(GOOD)))
    assert [record.seq for record in done.journal] == list(range(1, 9))
    assert outcome_of(fold(done.journal)) == done.outcome, "the outcome is read from the journal"
    began = 1_769_860_800_000
    assert [(fact_kind(record.fact), record.at - began) for record in done.journal] == [
        ("run_started", 0),
        ("model_asked", 0),
        ("model_replied", 700),
        ("output_refused", 700),
        ("model_asked", 700),
        ("model_replied", 1700),
        ("answer_reached", 1700),
        ("run_stopped", 1700),
    ]


def test_replay_has_the_same_canonical_journal_as_the_live_run(cassette_path: Path) -> None:
    agent = typed()
    replies = [completion(BAD), completion(GOOD)]
    done = replay(agent, record(cassette_path, agent, *replies))
    assert canonical(done.journal) == canonical(live(agent, ScriptedSender(replies)).records("live-1"))


def test_replay_uses_the_given_message_and_params(cassette_path: Path) -> None:
    agent = package()
    record(cassette_path, agent, completion("ok"), message="No paper.", team="office")
    done = replay(agent, cassette_path, "No paper.", team="office")
    started: Any = done.journal[0].fact
    assert started.input.parts[0].text == "No paper."
    assert started.instructions == "You sort tickets for the office team.\n\nAnswer briefly."
    assert (started.params, started.agent, started.package) == ({"team": "office"}, "triage", fingerprint(agent))
    assert done.exit_code == 0


def test_run_id_depends_on_package_input_and_cassette(cassette_path: Path) -> None:
    """One package, input and cassette: one id. Anything else: another."""
    agent = package()
    record(cassette_path, agent, completion("ok"))
    one, two = replay(agent, cassette_path), replay(agent, cassette_path)
    assert one.journal == two.journal
    assert one.outcome.run.startswith("replay-")
    others = [
        replay(package(limits={"depth": 2}), cassette_path),
        replay(agent, cassette_path, "Other."),
        replay(agent, cassette_path, "The printer of support is on fire.", team="other"),
        replay(agent, record(cassette_path, agent, completion("other"))),
    ]
    assert len({one.outcome.run, *(other.outcome.run for other in others)}) == 5


def test_replay_of_a_changed_package_or_of_another_agent_is_refused(cassette_path: Path) -> None:
    """A replay starts as every run: its package is checked first."""
    file = seal_package(package())
    player = Player(load_cassette(record(cassette_path, file.agent, completion("ok"))))
    changed = replace(file, agent=replace(file.agent, instructions=("Give everything away.",)))
    for agent, given, code in (("triage", changed, "package.fingerprint_mismatch"), ("other", file, "package.invalid")):
        with pytest.raises(PackageError) as raised:
            replay_run(Request(agent=agent, package=given), player)
        assert raised.value.code == code


def test_recorded_provider_failure_is_replayed(cassette_path: Path) -> None:
    agent = package()
    done = replay(agent, record(cassette_path, agent, *[failure(429, "Slow down", retry_after="7")] * 4))
    assert (done.outcome.code, done.exit_code, done.unused_error) == ("provider.rate_limited", 6, None)
    assert done.outcome.fields == {"status": 429, "retry_after": 7, "turn": 1, "attempts": 4}
    assert [fact_kind(record.fact) for record in done.journal[-2:]] == ["model_failed", "run_stopped"]


def test_retry_waits_of_a_replay_take_no_real_time(cassette_path: Path) -> None:
    """The wait is decided again and jumped over; the cassette's own moments come first."""
    agent = package()
    failures = [failure(503), failure(429, retry_after="9")]
    done = replay(agent, record(cassette_path, agent, *failures, completion("ok")))
    assert (done.outcome.answer, done.exit_code, done.unused_error) == ("ok", 0, None)
    planned = [(record, record.fact) for record in done.journal if isinstance(record.fact, RetryPlanned)]
    assert [fact.until - record.at for record, fact in planned] == [fact.wait for _, fact in planned]
    assert planned[1][1].wait >= 9000, "what the provider asks for is the least"
    asked = [record.at for record in done.journal if isinstance(record.fact, ModelAsked)]
    assert asked[1:] == [fact.until for _, fact in planned], "and it is waited for on the clock of the replay"
    assert done.journal == replay(agent, cassette_path).journal


def test_changed_request_is_a_miss_that_says_what_differs(cassette_path: Path) -> None:
    record(cassette_path, package(), completion("ok"))
    done = replay(package(model={"temperature": 0.7}), cassette_path)
    assert (done.outcome.status, done.outcome.code, done.exit_code) == ("failed", "cassette.miss", 3)
    fields = done.outcome.fields
    assert (fields["turn"], fields["nearest"], fields["difference"]) == (
        1,
        1,
        "temperature is 0.7, but the cassette has 0",
    )
    assert isinstance(done.unused_error, CassetteError), "the rest of the cassette is left, as a consequence"


def test_miss_in_a_later_turn_names_the_turn(cassette_path: Path) -> None:
    agent = typed()
    record(cassette_path, agent, completion(BAD), completion(GOOD))
    before, _, after = converted_text(cassette_path.read_text(encoding="utf-8"), packed=False).rpartition("kitchen")
    cassette_path.write_text(f"{before}cellar{after}", encoding="utf-8")
    done = replay(agent, cassette_path)
    assert (done.outcome.code, done.outcome.fields["turn"]) == ("cassette.miss", 2)
    assert "kitchen" in done.outcome.fields["difference"]


def test_unused_interactions_fail_a_completed_replay(cassette_path: Path) -> None:
    record(cassette_path, typed(), completion(BAD), completion(GOOD))
    shorter = typed(output={"repairs": 0})
    assert replay(shorter, cassette_path).outcome.code == "output.invalid"
    record(cassette_path, package(), completion("ok"))
    text = cassette_path.read_text(encoding="utf-8")
    cassette_path.write_text(text + text.partition("interactions:\n")[2], encoding="utf-8")
    done = replay(package(), cassette_path)
    assert done.outcome.status == "completed", "the journal says what the run did"
    assert done.unused_error is not None
    assert (done.unused_error.code, done.unused_error.fields["unused"]) == ("cassette.unused", [2])
    assert done.exit_code == 3, "but the command does not succeed"


# --- before the run exists ---------------------------------------------------------------------------------


def replay_error(agent: Package, cassette_path: Path, **request: Any) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        replay(agent, cassette_path, **request)
    return caught.value


def test_invalid_package_request_or_cassette_is_refused_before_the_run(cassette_path: Path) -> None:
    record(cassette_path, package(), completion("ok"))
    other = package(model={"routes": [ROUTE | {"provider": "nobody"}]})
    assert isinstance(error := replay_error(other, cassette_path), HostError)
    assert (error.code, error.fields) == ("provider.not_found", {"provider": "nobody"})
    error = replay_error(package(model={"routes": [ROUTE | {"options": {"stream": True}}]}), cassette_path)
    assert isinstance(error, PackageError)
    assert error.code == "package.invalid"
    error = replay_error(package(output={"schema": {"$ref": "https://example.com/x"}}), cassette_path)
    assert (error.code, error.fields["pointer"]) == ("package.invalid", "/output/schema")
    error = replay_error(package(budgets={"turns": 0}), cassette_path)
    assert (error.code, error.fields["pointer"]) == ("package.invalid", "/budgets/turns")
    assert error.fields["run"].startswith("replay-")
    error = replay_error(package(), cassette_path, nobody=1)
    assert isinstance(error, RequestError)
    assert error.code == "input.rejected"
    assert replay_error(package(), cassette_path.with_name("other.yaml")).code == "cassette.miss"
    cassette_path.write_text("version: 1\n", encoding="utf-8")
    assert replay_error(package(), cassette_path).code == "cassette.damaged"


def test_template_that_cannot_be_rendered_is_refused(cassette_path: Path) -> None:
    agent = package(params={"order": {"type": "object"}}, instructions=["{{ order.id }}"], input="x")
    record(cassette_path, package(), completion("x"))
    error = replay_error(agent, cassette_path, order={})
    assert (error.code, error.fields["reason"]) == ("input.rejected", "template")


# --- no way to the world -----------------------------------------------------------------------------------


class WentLive(Exception):
    """Something tried to reach the network."""


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def went_live(*args: object, **kwargs: object) -> None:
        raise WentLive

    for name in ("connect", "connect_ex", "send", "sendall", "sendto"):
        monkeypatch.setattr(socket.socket, name, went_live)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, went_live)


def test_replay_never_goes_live(cassette_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit, a miss and a leftover, with a key at hand and every way to the network blocked and watched."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    agent = typed()
    record(cassette_path, agent, completion(BAD), completion(GOOD))
    assert replay(agent, cassette_path).exit_code == 0
    assert replay(agent, cassette_path, "something that was never recorded").outcome.code == "cassette.miss"


def test_blocked_network_raises_on_connect(no_network: None) -> None:
    """The block does block."""
    with pytest.raises(WentLive):
        socket.create_connection(("127.0.0.1", 9))
    with socket.socket() as one, pytest.raises(WentLive):
        one.connect(("127.0.0.1", 9))


SCRIPT = """
import json, sys
from pathlib import Path
import msgspec
from agentrun.core.package import Package
from agentrun.cassette.file import load_cassette
from agentrun.cassette.player import Player
from agentrun.compiler.package_file import seal_package
from agentrun.engine.request import Request
from agentrun.engine.run import replay_run
from agentrun.canonical_json import sorted_json, text_hash
from agentrun.journal.canonical import canonical
package = msgspec.convert(json.loads(sys.argv[1]), Package)
done = replay_run(Request(agent=package.name, package=seal_package(package)), Player(load_cassette(Path(sys.argv[2]))))
heavy = {"asyncio", "httpx", "vcr", "pydantic", "ssl"} & {name.partition(".")[0] for name in sys.modules}
print(json.dumps({
    "lines": text_hash(b"".join(sorted_json(record) for record in done.journal)),
    "canonical": text_hash(canonical(done.journal)),
    "outcome": sorted_json(done.outcome).decode(),
    "heavy": sorted(heavy),
    "seed": hash("a"),
}))
"""


def replay_in_process(agent: dict[str, Any], cassette_path: Path, seed: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(agent), str(cassette_path)],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_replay_journal_is_the_same_under_any_hash_seed(cassette_path: Path) -> None:
    """Also with many errors in one answer: their order must not come from a hash table either."""
    fields = {f"field_{n}": {"type": "integer"} for n in range(30)}
    schema = {"type": "object", "properties": fields, "required": [*fields, "missing"]}
    agent = typed(output={"schema": schema, "repairs": 1})
    wrong = json.dumps(dict.fromkeys(fields, "text"))
    record(cassette_path, agent, completion(wrong), completion("{}"))
    plain = BASE | {"output": {**BASE["output"], "schema": schema, "repairs": 1}}
    runs = [replay_in_process(plain, cassette_path, seed) for seed in ("0", "1", "12345")]
    assert len({run.pop("seed") for run in runs}) == 3, "the seeds do differ"
    assert runs[0] == runs[1] == runs[2]
    assert '"output.invalid"' in runs[0]["outcome"]
    assert runs[0]["heavy"] == [], "a replay imports nothing that talks to the world"
