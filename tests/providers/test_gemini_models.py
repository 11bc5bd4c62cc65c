"""Features of Gemini models by name."""

import pytest

from agentrun.providers.gemini import gemini_features


@pytest.mark.parametrize(
    ("name", "current", "thinks", "off"),
    [
        ("gemini-1.5-pro", False, False, True),
        ("gemini-2.0-flash", False, False, True),
        ("gemini-2.5-flash", False, True, True),
        ("gemini-2.5-pro", False, True, False),
        ("gemini-3-pro-preview", True, True, False),
        ("models/gemini-3.7-flash", True, True, True),
        ("gemini-flash-latest", True, True, True),
        ("gemini-10", True, True, True),
    ],
)
def test_features_of_each_model_name(name: str, current: bool, thinks: bool, off: bool) -> None:
    assert gemini_features(name) == (current, thinks, off)
