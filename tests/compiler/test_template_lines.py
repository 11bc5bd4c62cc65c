"""Which line of a template each line of a text came from.

Here every text says where it stands: `<7>` is written on line 7 of its template, as text or inside an expression. So a
rendered line tells by itself what its origin must be.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler.template import (
    MAX_TRACED_PARTS,
    Json,
    RenderedLine,
    TemplateRenderError,
    render_template,
    render_template_lines,
)

from .test_template_comparison import LIKE_JINJA, SAME_AS_JINJA, TEMPLATE_VALUES

PROMPTS = Path(__file__).parents[2] / "specs" / "prompts"


def misplaced(lines: list[RenderedLine]) -> list[tuple[str, int]]:
    """The marks whose line is not the one that is reported, each with what is reported."""
    return [
        (mark[0], line.origin(mark.start()))
        for line in lines
        for mark in re.finditer(r"<(\d+)>", line.text)
        if line.origin(mark.start()) != int(mark[1])
    ]


def reported(source: str, values: dict[str, Json] | None = None) -> list[tuple[str, int]]:
    return [(line.text, line.origin()) for line in render_template_lines(source, values or TEMPLATE_VALUES)]


TEMPLATES: dict[str, list[tuple[str, int]]] = {
    "": [("", 1)],
    "a": [("a", 1)],
    "a\n": [("a", 1), ("", 2)],
    "a\n\nb": [("a", 1), ("", 2), ("b", 3)],
    "a\r\nb\rc": [("a", 1), ("b", 2), ("c", 3)],
    "a\n{{ lines }}\nb": [("a", 1), ("one", 2), ("", 2), ("  two", 2), ("b", 3)],
    "{{ lines }}.": [("one", 1), ("", 1), ("  two.", 1)],
    "a\n{% if yes %}\nb\n{% endif %}\nc": [("a", 1), ("", 2), ("b", 3), ("", 4), ("c", 5)],
    "a\n{% if no %}\nb\n{% else %}\nc\n{% endif %}\n": [("a", 1), ("", 4), ("c", 5), ("", 6), ("", 7)],
    "{% for n in numbers[:2] %}\n- {{ n }}\n{% endfor %}\nz": [
        ("", 1),
        ("- 3", 2),
        ("", 1),
        ("- 1", 2),
        ("", 3),
        ("z", 4),
    ],
    "{# one\ntwo #}\nb\n{% raw %}\n{{ c }}\n{% endraw %}\nd": [
        ("", 2),
        ("b", 3),
        ("", 4),
        ("{{ c }}", 5),
        ("", 6),
        ("d", 7),
    ],
    "a\n\n{%- if yes %}\nb\n{%- endif %}\n\nc": [("a", 1), ("b", 4), ("", 6), ("c", 7)],
    "a\n{% macro m(x) %}\n{{ x }}{% endmacro %}\n{{ m('b') }}": [("a", 1), ("", 3), ("", 4), ("b", 4)],
    "{% set x %}a\nb{% endset %}\n{{ x }}": [("", 2), ("a", 3), ("b", 3)],
    "a\n{% filter upper %}\nb{% endfilter %}": [("a", 1), ("", 2), ("B", 2)],
    "{{ name\n  |upper }}": [("ADA", 1)],
    "{{\n  'x'\n  ~ name }}!": [("xAda!", 2)],
    "{{ '' }}\nb": [("", 1), ("b", 2)],
    "a\n{{ '' }}": [("a", 1), ("", 2)],
}


@pytest.mark.parametrize("source", TEMPLATES)
def test_origins(source: str) -> None:
    assert reported(source) == TEMPLATES[source]


def test_a_line_of_several_lines() -> None:
    (line,) = render_template_lines("Region:\n{%- if yes %} EU\n{%- else %} US\n{%- endif %}!", TEMPLATE_VALUES)
    assert line == RenderedLine("Region: EU!", ((0, 1), (7, 2), (10, 4)))
    assert [line.origin(column) for column in (0, 6, 7, 9, 10, 99)] == [1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize("source", [*SAME_AS_JINJA, *LIKE_JINJA])
def test_the_text_is_the_rendered_one(source: str) -> None:
    lines = render_template_lines(source, TEMPLATE_VALUES)
    assert "\n".join(line.text for line in lines) == render_template(source, TEMPLATE_VALUES)
    assert all(1 <= at <= source.count("\n") + source.count("\r") + 1 for line in lines for _, at in line.parts)


def test_stops_like_render() -> None:
    with pytest.raises(TemplateRenderError) as stopped:
        render_template_lines("a\n{{ missing }}", TEMPLATE_VALUES)
    assert stopped.value.line == 2


VALUES_OF: dict[str, list[dict[str, Json]]] = {
    "support.md.j2": [{"order_id": "1042", "region": "eu"}, {"order_id": "1042", "region": "us"}],
    "triage.md.j2": [{"product": "Lamps", "topics": []}, {"product": "Lamps", "topics": ["a", "b"]}],
    "tone.md": [{}],
}


@pytest.mark.parametrize("path", sorted(PROMPTS.iterdir()), ids=lambda path: path.name)
def test_examples(path: Path) -> None:
    """Words that stand on one line of the template are said to come from it."""
    source = path.read_text(encoding="utf-8")
    written = source.split("\n")
    for values in VALUES_OF[path.name]:
        lines = render_template_lines(source, values)
        assert "\n".join(line.text for line in lines) == render_template(source, values)
        for line in lines:
            for column, at in line.parts:
                words = line.text[column : column + 12]
                assert written[at - 1].find(words) >= 0 or "{{" in written[at - 1]


# --- generated templates

SPACES = st.sampled_from(["", " ", "  ", "\n", "\n\n", " \n "])
OPEN, CLOSE = st.sampled_from(["{%", "{%-", "{%+"]), st.sampled_from(["%}", "-%}"])


@st.composite
def tags(draw: st.DrawFn, words: str) -> str:
    return f"{draw(OPEN)} {words} {draw(CLOSE)}"


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> str:
    kinds = ["text", "value", "lines", "comment", "wide"] + (["if", "for"] if depth else [])
    parts = []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        inner = draw(bodies(depth - 1)) if kind in ("if", "for") else ""
        match kind:
            case "if":
                test, other = draw(st.sampled_from(["yes", "no"])), draw(bodies(depth - 1))
                parts += [draw(tags(f"if {test}")), inner, draw(tags("else")), other, draw(tags("endif"))]
            case "for":
                parts += [draw(tags("for i in range(2)")), inner, draw(tags("endfor"))]
            case "comment":
                parts.append("{# a" + draw(SPACES) + "#}")
            case "value":
                parts.append(draw(st.sampled_from(["{{ '@' }}", "{{- '@' -}}"])))
            case "wide":
                parts.append("{{ '@'\n | trim\n }}")
            case "lines":
                parts.append("{{ '@\\n@\\n' }}")
            case _:
                parts.append("@")
        parts.append(draw(SPACES))
    return "".join(parts)


def number_lines(source: str) -> str:
    """Every `@` as the number of the line that it stands on."""
    return "\n".join(line.replace("@", f"<{n}>") for n, line in enumerate(source.split("\n"), 1))


@given(bodies().map(number_lines))
def test_generated(source: str) -> None:
    lines = render_template_lines(source, TEMPLATE_VALUES)
    assert "\n".join(line.text for line in lines) == render_template(source, TEMPLATE_VALUES)
    assert misplaced(lines) == []


@pytest.mark.parametrize("source", ["{{ x }}", "{% for c in x %}{{ c }}-\n-{% endfor %}"])
def test_very_many_parts_are_not_traced(source: str) -> None:
    assert len(render_template_lines(source, {"x": "\n" * 1_000})) > 1_000
    with pytest.raises(TemplateRenderError, match="not traced"):
        render_template_lines(source, {"x": "\n" * (MAX_TRACED_PARTS + 1)})


def test_the_generator_reaches_far() -> None:
    """A generator of nothing but plain text would pass with the number of the rendered line."""
    source = number_lines("@\n{% if no %}\n@\n{% else %}\n@\n{% endif %}\n@")
    wrong = [
        RenderedLine(line.text, ((0, n),)) for n, line in enumerate(render_template_lines(source, TEMPLATE_VALUES), 1)
    ]
    assert misplaced(wrong) == [("<5>", 3), ("<7>", 5)]


def test_a_planted_shift_is_found() -> None:
    source = number_lines("@{{ '@' }}\n@")
    shifted = [
        RenderedLine(line.text, tuple((column, at + 1) for column, at in line.parts))
        for line in render_template_lines(source, TEMPLATE_VALUES)
    ]
    assert len(misplaced(shifted)) == 3
