"""`fault_of`: an exception as a fault."""

from agentrun.core.fault import Fault, fault_of
from agentrun.errors import CassetteError


def test_an_error_keeps_its_code_message_evidence_and_hint() -> None:
    error = CassetteError("cassette.miss", "no match", hint="Record it again.", fields={"call": "c1.1"})
    assert fault_of(error) == Fault("cassette.miss", "no match", {"call": "c1.1"}, "Record it again.")
    assert fault_of(CassetteError("cassette.miss", "no match")) == Fault("cassette.miss", "no match")
