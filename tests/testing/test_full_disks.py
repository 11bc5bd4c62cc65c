"""If any record cannot be written, the run stops with a storage error and does nothing after it."""

import pytest

from agentrun.core.facts import ModelAsked, ToolStarted
from agentrun.engine.api import load_package_source
from agentrun.engine.clock import StepClock
from agentrun.errors import StorageError
from agentrun.testing import FailingJournals, Script, Stub
from agentrun.testing.laws import begin_run, finish_run, make_runtime

from .law_shapes import SHAPES, Shape

NEVER = 10_000


def run(shape: Shape, at: int) -> FailingJournals:
    clock, journals = StepClock(), FailingJournals(at)
    setting, file = shape.setting(clock), load_package_source(shape.package)
    runtime = make_runtime(file, setting, clock, journals, 8)
    try:
        finish_run(runtime, begin_run(runtime, file, setting), clock, "retry", "approved")
    finally:
        facts = [record.fact for name in journals.runs for record in journals.records(name)]
        models = setting.model.values() if isinstance(setting.model, dict) else [setting.model]
        sent = sum(len(model.requests) for model in models if isinstance(model, Script))
        ran = sum(tool.count for tool in setting.tools.values() if isinstance(tool, Stub))
        assert sent <= sum(isinstance(fact, ModelAsked) for fact in facts)
        assert ran <= sum(isinstance(fact, ToolStarted) for fact in facts)
        assert len(facts) == min(at - 1, journals.appends)
    return journals


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_failure_to_write_any_record_stops_the_run(shape: Shape) -> None:
    whole = run(shape, NEVER).appends
    for at in range(1, whole + 1):
        with pytest.raises(StorageError, match=r"storage\.failed|journal\.poisoned"):
            run(shape, at)
