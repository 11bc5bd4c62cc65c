"""Features of Anthropic models by name."""

import pytest

from agentrun.providers.anthropic import claude_features


@pytest.mark.parametrize(
    ("name", "effort", "samples", "off", "bound", "structured"),
    [
        ("claude-3-7-sonnet-20250219", False, True, "disabled", False, False),
        ("claude-opus-4-20250514", False, True, "disabled", False, False),
        ("claude-opus-4-1-20250805", False, True, "disabled", False, False),
        ("claude-haiku-4-5-20251001", False, True, "disabled", False, True),
        ("anthropic/claude-haiku-4.5", False, True, "disabled", False, True),
        ("us.anthropic.claude-opus-4-6-v1:0", True, True, "disabled", False, True),
        ("claude-opus-4-7", True, False, "disabled", False, True),
        ("claude-sonnet-5", True, False, "disabled", False, True),
        ("claude-opus-5", True, False, "disabled", False, True),
        ("claude-haiku-5-5", True, False, "disabled", True, True),
        ("claude-sonnet-5-5", True, False, "between_tools", True, True),
        ("claude-opus-5-5", True, False, None, True, True),
        ("claude-mythos-preview", True, False, None, False, True),
        ("claude-fable-5", True, False, None, False, True),
        ("claude-fable-5-1", True, False, None, True, True),
        ("claude-opus-12", True, False, None, True, True),
        ("claude-latest", False, True, "disabled", False, False),
        ("smollm2", False, True, "disabled", False, False),
    ],
)
def test_features_of_each_model_name(
    name: str, effort: bool, samples: bool, off: str | None, bound: bool, structured: bool
) -> None:
    takes = claude_features(name)
    assert (takes.effort, takes.samples, takes.off, takes.bound, takes.structured) == (
        effort,
        samples,
        off,
        bound,
        structured,
    )


@pytest.mark.parametrize(
    ("name", "both"), [("claude-opus-4-0", True), ("claude-opus-4-1", False), ("smollm2", True), ("claude-5", False)]
)
def test_models_that_take_temperature_and_top_p(name: str, both: bool) -> None:
    assert claude_features(name).samples_both == both


@pytest.mark.parametrize(
    ("name", "forced"), [("claude-opus-5", True), ("claude-opus-5-5", False), ("claude-haiku-5-5", True)]
)
def test_models_that_take_forced_calls(name: str, forced: bool) -> None:
    assert claude_features(name).forced == forced
