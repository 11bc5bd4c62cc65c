"""Whole replays, from a package and a cassette file to an outcome and a journal."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.canonical_json import text_hash
from agentrun.core.evolve import fold
from agentrun.core.facts import ModelAsked, RetryPlanned, fact_kind
from agentrun.core.messages import Usage
from agentrun.core.outcome import outcome_of
from agentrun.core.package import Package
from agentrun.engine.run import FinishedRun
from agentrun.errors import AgentrunError, CassetteError, HostError, PackageError, RequestError
from agentrun.journal.canonical import canonical

from ..packages import BASE, ROUTE, package, typed
from ..replays import replay_package
from ..worlds import BAD, GOOD, Scripted, completion, failure, live, record

PRINT = text_hash("the package")


def replay(agent: Package, cassette: Path, message: str | None = None, **params: Any) -> FinishedRun:
    return replay_package(agent, cassette, message, params, fingerprint=PRINT)


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tape.yaml"


def test_text(tape: Path) -> None:
    agent = package()
    done = replay(agent, record(tape, agent, completion("Call the fire brigade.")))
    outcome = done.outcome
    assert (outcome.status, outcome.answer, outcome.code) == ("completed", "Call the fire brigade.", None)
    assert outcome.replayed, "a replayed outcome says that it is one"
    assert (outcome.output, outcome.turns, outcome.usage) == (UNSET, 1, Usage(20, 5, 0, 0))
    assert (done.exit_code, done.unused_error) == (0, None)


def test_typed(tape: Path) -> None:
    agent = typed()
    done = replay(agent, record(tape, agent, completion(BAD), completion(GOOD)))
    assert done.outcome.output == {"queue": "hardware", "urgent": True}
    assert (done.outcome.turns, done.exit_code) == (2, 0)


def test_journal(tape: Path) -> None:
    agent = typed()
    done = replay(agent, record(tape, agent, completion(BAD), completion(GOOD)))
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


def test_means_the_same_as_the_recorded_run(tape: Path) -> None:
    agent = typed()
    replies = [completion(BAD), completion(GOOD)]
    done = replay(agent, record(tape, agent, *replies))
    assert canonical(done.journal) == canonical(live(agent, Scripted(replies)).records("live-1"))


def test_message_and_params(tape: Path) -> None:
    agent = package()
    record(tape, agent, completion("ok"), message="No paper.", team="office")
    done = replay(agent, tape, "No paper.", team="office")
    started: Any = done.journal[0].fact
    assert started.input.parts[0].text == "No paper."
    assert started.instructions == "You sort tickets for the office team.\n\nAnswer briefly."
    assert (started.params, started.agent, started.package) == ({"team": "office"}, "triage", PRINT)
    assert done.exit_code == 0


def test_run_id(tape: Path) -> None:
    """One package, input and tape: one id. Anything else: another."""
    agent = package()
    record(tape, agent, completion("ok"))
    one, two = replay(agent, tape), replay(agent, tape)
    assert one.journal == two.journal
    assert one.outcome.run.startswith("replay-")
    others = [
        replay_package(agent, tape, fingerprint="sha256:other"),
        replay(agent, tape, "Other."),
        replay(agent, tape, "The printer of support is on fire.", team="other"),
        replay(agent, record(tape, agent, completion("other"))),
    ]
    assert len({one.outcome.run, *(other.outcome.run for other in others)}) == 5


def test_provider_failure(tape: Path) -> None:
    agent = package()
    done = replay(agent, record(tape, agent, *[failure(429, "Slow down", retry_after="7")] * 4))
    assert (done.outcome.code, done.exit_code, done.unused_error) == ("provider.rate_limited", 6, None)
    assert done.outcome.fields == {"status": 429, "retry_after": 7, "turn": 1, "attempts": 4}
    assert [fact_kind(record.fact) for record in done.journal[-2:]] == ["model_failed", "run_stopped"]


def test_waits_between_attempts_take_no_time(tape: Path) -> None:
    """The wait is decided again and jumped over; the tape's own moments come first."""
    agent = package()
    failures = [failure(503), failure(429, retry_after="9")]
    done = replay(agent, record(tape, agent, *failures, completion("ok")))
    assert (done.outcome.answer, done.exit_code, done.unused_error) == ("ok", 0, None)
    planned = [(record, record.fact) for record in done.journal if isinstance(record.fact, RetryPlanned)]
    assert [fact.until - record.at for record, fact in planned] == [fact.wait for _, fact in planned]
    assert planned[1][1].wait >= 9000, "what the provider asks for is the least"
    asked = [record.at for record in done.journal if isinstance(record.fact, ModelAsked)]
    assert asked[1:] == [fact.until for _, fact in planned], "and it is waited for on the clock of the replay"
    assert done.journal == replay(agent, tape).journal


def test_miss(tape: Path) -> None:
    record(tape, package(), completion("ok"))
    done = replay(package(model={"temperature": 0.7}), tape)
    assert (done.outcome.status, done.outcome.code, done.exit_code) == ("failed", "cassette.miss", 3)
    fields = done.outcome.fields
    assert (fields["turn"], fields["nearest"], fields["difference"]) == (
        1,
        1,
        "temperature is 0.7, but the cassette has 0",
    )
    assert isinstance(done.unused_error, CassetteError), "the rest of the tape is left, as a consequence"


def test_miss_in_a_later_turn(tape: Path) -> None:
    agent = typed()
    record(tape, agent, completion(BAD), completion(GOOD))
    before, _, after = tape.read_text(encoding="utf-8").rpartition("kitchen")
    tape.write_text(f"{before}cellar{after}", encoding="utf-8")
    done = replay(agent, tape)
    assert (done.outcome.code, done.outcome.fields["turn"]) == ("cassette.miss", 2)
    assert "kitchen" in done.outcome.fields["difference"]


def test_unused(tape: Path) -> None:
    record(tape, typed(), completion(BAD), completion(GOOD))
    shorter = typed(output={"repairs": 0})
    assert replay(shorter, tape).outcome.code == "output.invalid"
    record(tape, package(), completion("ok"))
    text = tape.read_text(encoding="utf-8")
    tape.write_text(text + text.partition("interactions:\n")[2], encoding="utf-8")
    done = replay(package(), tape)
    assert done.outcome.status == "completed", "the journal says what the run did"
    assert done.unused_error is not None
    assert (done.unused_error.code, done.unused_error.fields["unused"]) == ("cassette.unused", [2])
    assert done.exit_code == 3, "but the command does not succeed"


# --- before the run exists ---------------------------------------------------------------------------------


def refused(agent: Package, tape: Path, **request: Any) -> AgentrunError:
    with pytest.raises(AgentrunError) as caught:
        replay(agent, tape, **request)
    return caught.value


def test_refused_before_it_starts(tape: Path) -> None:
    record(tape, package(), completion("ok"))
    other = package(model={"routes": [ROUTE | {"provider": "nobody"}]})
    assert isinstance(error := refused(other, tape), HostError)
    assert (error.code, error.fields) == ("provider.not_found", {"provider": "nobody"})
    error = refused(package(model={"routes": [ROUTE | {"options": {"stream": True}}]}), tape)
    assert isinstance(error, PackageError)
    assert error.code == "package.invalid"
    error = refused(package(output={"schema": {"$ref": "https://example.com/x"}}), tape)
    assert (error.code, error.fields) == ("package.invalid", {"pointer": "/output/schema"})
    error = refused(package(budgets={"turns": 0}), tape)
    assert (error.code, error.fields) == ("package.invalid", {"pointer": "/budgets/turns"})
    error = refused(package(), tape, nobody=1)
    assert isinstance(error, RequestError)
    assert error.code == "input.rejected"
    assert refused(package(), tape.with_name("other.yaml")).code == "cassette.miss"
    tape.write_text("version: 1\n", encoding="utf-8")
    assert refused(package(), tape).code == "cassette.damaged"


def test_template_that_cannot_be_filled(tape: Path) -> None:
    agent = package(params={"order": {"type": "object"}}, instructions=["{{ order.id }}"], input="x")
    record(tape, package(), completion("x"))
    error = refused(agent, tape, order={})
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


def test_replay_never_goes_live(tape: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit, a miss and a leftover, with a key at hand and every way to the network blocked and watched."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    agent = typed()
    record(tape, agent, completion(BAD), completion(GOOD))
    assert replay(agent, tape).exit_code == 0
    assert replay(agent, tape, "something that was never recorded").outcome.code == "cassette.miss"


def test_block_planted(no_network: None) -> None:
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


def in_a_process(agent: dict[str, Any], tape: Path, seed: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(agent), str(tape)],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_same_bytes_under_any_hash_seed(tape: Path) -> None:
    """Also with many errors in one answer: their order must not come from a hash table either."""
    fields = {f"field_{n}": {"type": "integer"} for n in range(30)}
    schema = {"type": "object", "properties": fields, "required": [*fields, "missing"]}
    agent = typed(output={"schema": schema, "repairs": 1})
    wrong = json.dumps(dict.fromkeys(fields, "text"))
    record(tape, agent, completion(wrong), completion("{}"))
    plain = BASE | {"output": {**BASE["output"], "schema": schema, "repairs": 1}}
    runs = [in_a_process(plain, tape, seed) for seed in ("0", "1", "12345")]
    assert len({run.pop("seed") for run in runs}) == 3, "the seeds do differ"
    assert runs[0] == runs[1] == runs[2]
    assert '"output.invalid"' in runs[0]["outcome"]
    assert runs[0]["heavy"] == [], "a replay imports nothing that talks to the world"
