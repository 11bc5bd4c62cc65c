"""Settings that a provider does not support are reported at their key."""

from pathlib import Path

import pytest

from agentrun.compiler.compile import compile_spec

SPEC = """\
agentrun: "1"
name: able
model:
  provider: {provider}
  name: {name}
  {key}: {value}
instructions: Answer.
input: Hi.
budgets: {{turns: 3, tokens: 10k}}
"""


def problems(tmp_path: Path, text: str) -> list[tuple[str, int, int]]:
    path = tmp_path / "able.yaml"
    path.write_text(text, encoding="utf-8")
    compiled = compile_spec(path)
    assert (compiled.package is None) == bool(compiled.problems)
    return [(problem.code, problem.line, problem.column) for problem in compiled.problems]


@pytest.mark.parametrize(
    ("provider", "name", "key", "value"),
    [
        ("openai-responses", "gpt-4.1-mini", "seed", "1"),
        ("openai-responses", "gpt-4.1-mini", "stop", "[END]"),
        ("anthropic", "claude-haiku-4-5", "seed", "1"),
        ("openai", "gpt-4.1-mini", "options", "{messages: []}"),
        ("gemini", "gemini-2.5-flash", "options", "{contents: []}"),
    ],
)
def test_unsupported_setting_is_reported_at_its_key(
    tmp_path: Path, provider: str, name: str, key: str, value: str
) -> None:
    text = SPEC.format(provider=provider, name=name, key=key, value=value)
    assert problems(tmp_path, text) == [("spec.unsupported", 6, 3)]


def test_supported_setting_has_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, SPEC.format(provider="openai", name="gpt-4.1-mini", key="seed", value="1")) == []


def test_unsupported_setting_of_a_fallback_is_reported_at_the_fallback(tmp_path: Path) -> None:
    text = SPEC.format(provider="openai", name="gpt-4.1-mini", key="seed", value="1")
    text = text.replace("instructions:", "  fallback: [anthropic/claude-haiku-4-5]\ninstructions:")
    assert problems(tmp_path, text) == [("spec.unsupported", 7, 14)]


def test_custom_provider_is_not_checked(tmp_path: Path) -> None:
    """Nothing is known about it, except that agentrun has no provider of this name."""
    path = tmp_path / "able.yaml"
    path.write_text(SPEC.format(provider="own", name="m", key="seed", value="1"), encoding="utf-8")
    compiled = compile_spec(path)
    assert compiled.package is not None
    assert [problem.code for problem in compiled.problems] == ["spec.unknown_provider"]
