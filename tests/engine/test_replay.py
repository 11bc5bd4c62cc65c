from pathlib import Path

from agentrun.engine.assemble import replay_run
from agentrun.journal.canonical import canonical

from ..packages import typed
from ..worlds import BAD, GOOD, completion, record


def test_x(tmp_path: Path) -> None:
    agent = typed()
    tape = record(tmp_path / "a.yaml", agent, completion(BAD), completion(GOOD))
    print(tape.read_text())
    done = replay_run(agent, fingerprint="sha256:x", message=None, params={}, cassette=tape)
    print(done.outcome)
    print(canonical(done.journal))
    assert done.exit_code == 0
