"""`audit_ok`, and the imports of agentrun.testing.laws."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

import agentrun
from agentrun.compiler.package_file import seal_package
from agentrun.core.facts import ModelAsked
from agentrun.engine.memory import MemoryJournals
from agentrun.testing import StepClock, laws, scripted

from ..packages import package
from .law_shapes import SHAPES, Shape


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_audit_law_passes_for_every_shape(shape: Shape) -> None:
    clock, journals = StepClock(), MemoryJournals()
    setting = shape.setting(clock)
    given = {"tools": setting.tools, "hooks": setting.hooks, "sinks": setting.sinks, "clock": clock}
    if setting.approver is not None:
        given["approver"] = setting.approver
    agentrun.run(shape.package, setting.message, model=setting.model, journals=journals, **given)  # type: ignore[call-overload]  # the test gives the right kind
    laws.audit_ok(shape.package, journals.records("run-1"))
    laws.audit_ok(seal_package(shape.package), journals.records("run-1"))


def test_audit_law_finds_a_changed_decision() -> None:
    journals = MemoryJournals()
    agentrun.run(package(), "Hi.", model=scripted("Hello."), journals=journals, clock=StepClock())
    records = [
        replace(record, fact=replace(record.fact, reserved=0)) if isinstance(record.fact, ModelAsked) else record
        for record in journals.records("run-1")
    ]
    with pytest.raises(
        AssertionError, match=r"(?s)record 2 is model_asked.*was .*\"reserved\":0.*is now .*model_asked"
    ):
        laws.audit_ok(package(), records)
    with pytest.raises(AssertionError, match="is now nothing"):
        laws.audit_ok(package(), [*journals.records("run-1")[:2], replace(records[4], seq=3)])


def test_laws_import_neither_pytest_nor_asyncio() -> None:
    code = "import sys, agentrun.testing.laws; sys.exit('pytest' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
