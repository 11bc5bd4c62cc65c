"""`fault_of`: an exception as a fault."""

from agentrun.core.fault import Fault, fault_of
from agentrun.errors import CassetteError, ToolError


def test_an_error_keeps_its_code_message_evidence_and_hint() -> None:
    error = ToolError("tool.drift", "no match", hint="Record it again.", fields={"call": "c1.1"})
    assert fault_of(error) == Fault("tool.drift", "no match", {"call": "c1.1"}, "Record it again.")
    assert fault_of(ToolError("tool.drift", "no match")) == Fault("tool.drift", "no match")


def test_a_cassette_error_has_all_fields_of_its_row() -> None:
    assert fault_of(CassetteError("cassette.miss", "no match")).fields == dict.fromkeys(
        ("turn", "nearest", "difference")
    )
