"""Pruning of unused interactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrun.cassette.file import load_cassette
from agentrun.cassette.prune import apply_prune_step, plan_prune
from agentrun.errors import StorageError
from agentrun.store.staged_cassettes import lock_cassette
from agentrun.testing.suite.replay import SuiteReplays

from ..cli.desk_project import CASSETTE, NOW, add_unused, edit, rewrite, unplayed_interaction, without_lines


def test_cassette_that_changed_since_the_plan_is_not_pruned(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    add_unused(desk / CASSETTE)
    (step,) = plan_prune([], SuiteReplays())
    edit(desk / CASSETTE, "Please refund", "Do refund")
    after = (desk / CASSETTE).read_bytes()
    with pytest.raises(StorageError, match="changed meanwhile"):
        apply_prune_step(step, NOW, lock_cassette)
    assert (desk / CASSETTE).read_bytes() == after


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_unused_interactions_anywhere_are_pruned(
    data: st.DataObject, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers and repetitions anywhere: what is left is what was recorded."""
    monkeypatch.chdir(desk)
    original = (desk / CASSETTE).read_bytes()
    good = load_cassette(desk / CASSETTE)
    mixed = list(good.interactions)
    repeated = [each for each in good.interactions if each.call.method == "CALL"]
    for number in range(data.draw(st.integers(1, 4))):
        extra = data.draw(st.sampled_from([unplayed_interaction(number), *repeated]))
        first = mixed.index(extra) + 1 if extra in mixed else 0  # of equal requests the first recorded is played
        mixed.insert(data.draw(st.integers(first, len(mixed))), extra)
    try:
        rewrite(desk / CASSETTE, lambda _: mixed)
        (step,) = plan_prune([], SuiteReplays())
        assert step.action == "rewrite"
        apply_prune_step(step, NOW, lock_cassette)
        assert without_lines(load_cassette(desk / CASSETTE).interactions) == without_lines(good.interactions)
        assert plan_prune([], SuiteReplays()) == []
    finally:
        (desk / CASSETTE).write_bytes(original)
