"""The reference to a fact that is stored in a file of its own."""

import msgspec
import pytest

from agentrun.core.fact_blob import FactBlob


def test_reference_has_no_other_fields() -> None:
    """A line with one more field is a damaged one."""
    reference = {"blob": "sha256:0", "size": 3, "type": "tool_finished"}
    assert msgspec.convert(reference, FactBlob) == FactBlob("sha256:0", 3, "tool_finished")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**reference, "more": 1}, FactBlob)
