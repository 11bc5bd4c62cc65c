"""YAML text to a document tree: what is accepted and refused, the same with both parsers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.spec import yaml_parser
from agentrun.spec.problems import PROBLEM_CODES, DocumentError, Problem, Source, render_problem
from agentrun.spec.source_files import MAX_FILE_BYTES
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, plain_data
from agentrun.spec.yaml_parser import BadNumber, parse_plain_scalar, parse_yaml_document


@pytest.fixture(params=[False, True], ids=["libyaml", "python"])
def pure(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def source(text: str) -> Source:
    return Source(Path("/p/a.yaml"), "a.yaml", text)


def load(text: str, pure: bool = False) -> Any:
    return plain_data(parse_yaml_document(source(text), pure=pure))


def parse_problems(text: str, pure: bool = False) -> list[Problem]:
    with pytest.raises(DocumentError) as error:
        parse_yaml_document(source(text), pure=pure)
    assert error.value.problems
    assert all(render_problem(problem) and problem.code in PROBLEM_CODES for problem in error.value.problems)
    return error.value.problems


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.items if isinstance(node, SequenceNode) else ():
        yield from nodes(child)
    for entry in node.entries.values() if isinstance(node, MappingNode) else ():
        yield from nodes(entry.node)


def tree(text: str, pure: bool) -> Node | None:
    try:
        return parse_yaml_document(source(text), pure=pure)
    except DocumentError as error:
        problems = error.problems
    assert all(render_problem(problem) and problem.code in PROBLEM_CODES for problem in problems)
    return None


class TestValues:
    def test_plain_scalars_follow_yaml_1_2(self, pure: bool) -> None:
        text = "a: no\nb: on\nc: 1:30\nd: 1_000\ne: 2025-01-01\nf: 0o17\n"
        text += "g: ~\nh: True\ni: '1'\nj: \"~\"\nk: |\n  1\nl:\n"
        assert load(text, pure) == {
            "a": "no",
            "b": "on",
            "c": "1:30",
            "d": "1_000",
            "e": "2025-01-01",
            "f": 15,
            "g": None,
            "h": True,
            "i": "1",
            "j": "~",
            "k": "1\n",
            "l": None,
        }

    def test_keys_are_texts_as_written(self, pure: bool) -> None:
        text = "on: 1\n1: 2\ntrue: 3\n012: 4\n1e3: 5\n'null': 6\n\"~\": 7\n.inf: 8\n? |\n  b\n: 9"
        wanted = ["on", "1", "true", "012", "1e3", "null", "~", ".inf", "b\n"]
        assert load(text, pure) == {key: number for number, key in enumerate(wanted, 1)}

    def test_root_may_be_any_value(self, pure: bool) -> None:
        assert load("[1, 2]", pure) == [1, 2]
        assert load("text", pure) == "text"
        assert load("~", pure) is None
        assert load("--- {a: 1}\n...\n", pure) == {"a": 1}
        assert load("%YAML 1.2 # yes\n---\na: 1", pure) == {"a": 1}

    def test_json_is_accepted(self, pure: bool) -> None:
        assert load('{"a":[1,2.5,true,null,"x\\u00e9\\/"],"b":{}}', pure) == {
            "a": [1, 2.5, True, None, "xé/"],
            "b": {},
        }

    def test_aliases(self, pure: bool) -> None:
        text = "a: &x {k: [1]}\nb: *x\nc: &y text\nd: [*x, *y]\ne: &x 2\nf: *x\n&z g: 1\nh: *z"
        assert load(text, pure) == {
            "a": {"k": [1]},
            "b": {"k": [1]},
            "c": "text",
            "d": [{"k": [1]}, "text"],
            "e": 2,
            "f": 2,
            "g": 1,
            "h": "g",
        }

    def test_inner_anchor_replaces_the_outer_one_of_the_same_name(self, pure: bool) -> None:
        assert load("a: &x [&x 1]\nb: *x", pure) == {"a": [1], "b": 1}


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "code", "line", "column"),
        [
            ("a: 1\nb: 2\na: 3", "spec.duplicate_key", 3, 1),
            ("{a: {x: 1, 'x': 2}}", "spec.duplicate_key", 1, 12),
            ("1: a\n'1': b", "spec.duplicate_key", 2, 1),
            ("a: {<<: {b: 1}}", "spec.merge_key", 1, 5),
            ("x: &x {a: 1}\ny:\n  <<: *x", "spec.merge_key", 3, 3),
            ("a: !!str 1", "spec.tag", 1, 4),
            ("a: !x [1]", "spec.tag", 1, 4),
            ("a: ! 1", "spec.tag", 1, 4),
            ("a: !x!y 1", "spec.tag", 1, 4),
            ("- !!python/object/apply:os.system [x]", "spec.tag", 1, 3),
            ("~: 1", "spec.key", 1, 1),
            ("'': 1", "spec.key", 1, 1),
            ("null: 1", "spec.key", 1, 1),
            ("? [a]\n: 1", "spec.key", 1, 3),
            ("{a: 1}: 1", "spec.key", 1, 1),
            ("a: &x b\n*x : 1", "spec.key", 2, 1),
            ("a: {{ x }}", "spec.key", 1, 4),
            ("a: [012]", "spec.number", 1, 5),
            ("a: .nan", "spec.number", 1, 4),
            ("a: 9007199254740992", "spec.number", 1, 4),
            ("a: 1\n---\nb: 2", "spec.documents", 2, 1),
            ("a: 1\n...\n---\n", "spec.documents", 3, 1),
            ("", "spec.empty", 1, 1),
            ("# nothing\n", "spec.empty", 1, 1),
            ("---\n", "spec.empty", 1, 1),
            ("a: *x", "spec.yaml_syntax", 1, 4),
            ("a: &x [*x]", "spec.alias_limit", 1, 8),
            ("a: &x {b: {c: *x}}", "spec.alias_limit", 1, 15),
            ("%YAML 1.1\n---\na: 1", "spec.yaml_syntax", 1, 1),
            ("%TAG ! x\n---\na: 1", "spec.yaml_syntax", 1, 1),
            ("a: x\0y", "spec.encoding", 1, 5),
            ("a: 1\nb: x\u2028y", "spec.encoding", 2, 5),
            ("\ufeffa: 1", "spec.encoding", 1, 1),
            ("a: \ud800", "spec.encoding", 1, 4),
            ("a: 1\r\nb: 2", "spec.encoding", 1, 5),
            ("a: \x85", "spec.encoding", 1, 4),
        ],
    )
    def test_refused_text_has_its_code_and_place(
        self, text: str, code: str, line: int, column: int, pure: bool
    ) -> None:
        found = [(problem.code, problem.line, problem.column) for problem in parse_problems(text, pure)]
        assert found == [(code, line, column)]

    def test_empty_key_is_refused(self, pure: bool) -> None:
        assert [problem.code for problem in parse_problems("{? : 1}", pure)] == ["spec.key"]

    def test_lone_surrogate_escape_is_refused(self, pure: bool) -> None:
        (problem,) = parse_problems('a: "\\ud83d"', pure)
        assert problem.code in ("spec.encoding", "spec.yaml_syntax")

    def test_duplicate_key_names_both_places(self) -> None:
        (problem,) = parse_problems("x:\n  tools: 1\n  tools: 2")
        assert problem.message == 'the key "tools" is already set at line 2, column 3'

    def test_all_problems_are_reported_at_once(self, pure: bool) -> None:
        text = "a: 1\na: 2\n<<: {b: .inf}\nc: !!int '1'\n~: 012\n? [x]\n: y\nd: *no\ne: [1"
        codes = [problem.code.removeprefix("spec.") for problem in parse_problems(text, pure)]
        assert codes == [
            *("duplicate_key", "merge_key", "number", "tag", "key", "number", "key"),
            *("yaml_syntax", "yaml_syntax"),
        ]

    def test_number_of_problems_is_limited(self) -> None:
        assert len(parse_problems("a: 1\n" * 500)) == yaml_parser.MAX_PROBLEMS
        assert len(parse_problems("\0" * 500)) == yaml_parser.MAX_PROBLEMS

    def test_unknown_alias_gets_a_suggestion(self) -> None:
        assert parse_problems("a: &base 1\nb: *bose")[0].hint == 'did you mean "base"?'

    def test_messages_are_short_and_visible(self) -> None:
        long = "k" * 5000
        (problem,) = parse_problems(f"? {long}\n: 1\n? {long}\n: 2")
        assert len(problem.message) < 150
        assert "\x1b" not in parse_problems('"\\e[2J": 1\n"\\e[2J": 2')[0].message


class TestSyntax:
    @pytest.mark.parametrize(
        ("text", "line", "column", "said"),
        [
            ("a:\n\tb: 1", 2, 1, "indent with spaces"),
            ("a: b\n\tc: d", 2, 1, "indent with spaces"),
            ("name:support\nmodel: x", 1, 5, "add a space"),
            ("a: text: more", 1, 8, "quote a value"),
            ("a: 1\n b: 2", 2, 2, "indentation"),
            ("a:\n  b: 1\n c: 2", 3, 2, "indentation"),
            ("a: {{ x }} and more", 1, 4, "quote the template"),
            ("a: {% if x %}", 1, 5, "quote the template"),
            ("a: @x", 1, 4, "quote the value"),
            ("a: `x`", 1, 4, "quote the value"),
            ("allow: *", 1, 8, "quote the value"),
            ("allow: [*.md]", 1, 9, "quote the value"),
            ("a: 'never\nb: 1\n", 1, 4, "close it"),
            ('a: "never', 1, 4, "close it"),
            ("tools: [a, b\npolicy: x\n", 1, 8, 'add "]"'),
            ("a: {b: 1", 1, 4, 'add "}"'),
            ("{a: 1 b: 2}", 1, 8, "separate items"),
            ("a: 'it's'", 1, 8, "quote the whole value"),
            ('a: "\\q"', 1, 5, "double the backslash"),
            ("a: - b", 1, 4, "own line"),
            ("- a\nb: 1", 2, 1, "begin each item"),
            ("a: 1\nfoo bar\nz: 1", 2, 1, "key: value"),
            (": 1", 1, 1, "there is no key"),
            ("a: 1\n: 2", 2, 1, "there is no key"),
            ("a: {: 1}", 1, 5, "there is no key"),
            ("a: ]", 1, 4, "a value is expected"),
            ('"a" b', 1, 5, "the whole value"),
        ],
    )
    def test_syntax_error_has_a_place_and_an_explanation(
        self, text: str, line: int, column: int, said: str, pure: bool
    ) -> None:
        (problem,) = parse_problems(text, pure)
        assert (problem.line, problem.column) == (line, column)
        assert said in f"{problem.message} {problem.hint}"


class TestLimits:
    """Each limit from both sides."""

    def test_depth_limit(self, pure: bool) -> None:
        limit = yaml_parser.MAX_DOCUMENT_DEPTH
        assert load("[" * limit + "]" * limit, pure)
        assert parse_problems("[" * (limit + 1) + "]" * (limit + 1), pure)[0].code == "spec.depth_limit"

    def test_depth_limit_counts_through_aliases(self) -> None:
        half = yaml_parser.MAX_DOCUMENT_DEPTH // 2
        text = "- &x " + "[" * half + "]" * half + "\n- "
        inner = yaml_parser.MAX_DOCUMENT_DEPTH - half - 1  # the outermost list is a level, too
        assert load(text + "[" * inner + "*x" + "]" * inner)
        inner += 1
        assert parse_problems(text + "[" * inner + "*x" + "]" * inner)[0].code == "spec.depth_limit"

    def test_depth_limit_counts_through_nested_aliases(self) -> None:
        text = "- &a0 [x]\n" + "".join(f"- &a{i} [*a{i - 1}]\n" for i in range(1, 99))
        assert parse_problems(text)[0].code == "spec.depth_limit"

    def test_aliases(self) -> None:
        limit = yaml_parser.MAX_DOCUMENT_ALIASES
        assert len(load("- &x 1\n" + "- *x\n" * limit)) == limit + 1
        assert parse_problems("- &x 1\n" + "- *x\n" * (limit + 1))[0].code == "spec.alias_limit"

    def test_node_limit(self) -> None:
        limit = yaml_parser.MAX_DOCUMENT_NODES
        assert len(load("[" + "x," * (limit - 1) + "]")) == limit - 1
        assert parse_problems("[" + "x," * limit + "]")[0].code == "spec.too_large"

    def test_node_limit_counts_through_aliases(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "- &x [1, {k: v}]\n- [*x, *x]\n"  # 1 + 5 + 1 + 5 + 5
        for limit, accepted in ((17, True), (16, False)):
            monkeypatch.setattr(yaml_parser, "MAX_DOCUMENT_NODES", limit)
            assert accepted == (tree(text, False) is not None)
        assert parse_problems(text)[0].code == "spec.alias_limit"

    def test_size_limit_counts_bytes(self) -> None:
        limit = MAX_FILE_BYTES
        assert load("'" + "x" * (limit - 2) + "'") == "x" * (limit - 2)
        assert parse_problems("'" + "x" * (limit - 1) + "'")[0].code == "spec.too_large"
        assert parse_problems("'" + "é" * (limit // 2) + "'")[0].code == "spec.too_large"


class TestPlaces:
    TEXT = """\
# comment
name: support agent
'quoted': &a [1, "two", 'three', *a2]
block: |
  text
  more
日本: {x: 😀, y:   z}
nested:
  - &a2 deep
  -   - deeper
      - key: value
"""

    def test_every_scalar_points_at_its_text(self, pure: bool) -> None:
        text = self.TEXT.replace(", *a2", "")
        root = parse_yaml_document(source(text), pure=pure)
        seen = 0
        for node in nodes(root):
            line = node.place.source.line(node.place.line) or ""
            rest = line[node.place.column - 1 :]
            if isinstance(node, ScalarNode):
                raw = text[node.start : node.end]
                assert raw.startswith(rest[: node.place.width])
                assert rest.startswith((node.text, f"'{node.text}'", f'"{node.text}"', "|"))
                seen += 1
            elif isinstance(node, MappingNode):
                assert rest[0] == "{" or rest.lstrip("'").startswith(next(iter(node.entries)))
                for key, entry in node.entries.items():
                    at = (entry.key_place.source.line(entry.key_place.line) or "")[entry.key_place.column - 1 :]
                    assert at[: entry.key_place.width].strip("'") == key
            else:
                assert rest[0] in "[-"
        assert seen == 10

    @settings(max_examples=50)
    @given(st.recursive(st.text(min_size=1, max_size=6), lambda x: st.lists(x, max_size=4), max_leaves=12))
    def test_every_scalar_of_json_points_at_its_text(self, value: Any) -> None:
        text = json.dumps(["", value], ensure_ascii=True).replace("\\u", "u").replace("\\", "")
        for pure in (False, True):
            root = tree(text, pure)
            for node in nodes(root) if root else ():
                if isinstance(node, ScalarNode):
                    assert text[node.start] == '"' or text[node.start : node.end].startswith(node.text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abcdefß日-_ 0", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=15,
)


def _yaml_agrees(value: Any) -> bool:
    """Is every text read alike by YAML 1.1, for which PyYAML decides what to quote, and by 1.2?"""
    if isinstance(value, dict):
        return all(_yaml_agrees(inner) for inner in value.values())
    if isinstance(value, list):
        return all(map(_yaml_agrees, value))
    try:
        return not isinstance(value, str) or not value or parse_plain_scalar(value) == value
    except BadNumber:
        return False


class TestRoundTrip:
    @given(JSON.filter(lambda value: value not in (None, "")))
    def test_output_of_json_dumps_is_parsed_back(self, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False)
        if yaml_parser._FORBIDDEN_CHARACTER.search(text):
            assert parse_problems(text)[0].code == "spec.encoding"
        else:
            assert load(text) == value
            assert load(json.dumps(value, ensure_ascii=False, indent=2)) == value

    @given(JSON.filter(lambda value: value not in (None, "") and _yaml_agrees(value)), st.booleans())
    def test_output_of_yaml_safe_dump_is_parsed_back(self, value: Any, flow: bool) -> None:
        text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=flow)
        for pure in (False, True):
            assert load(text, pure) == value


YAML_PIECES = (
    *(
        "a",
        "b: ",
        "- ",
        "\n",
        "\n  ",
        "  ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ",",
        ": ",
        ":",
        "? ",
        "&x ",
        "*x",
        "'",
        '"',
        "|",
    ),
    *(
        "|2",
        "|-\n",
        ">",
        "#",
        " #",
        "!",
        "!!str ",
        "%",
        "---",
        "...\n",
        "<<",
        "1",
        "012",
        "é",
        "\\",
        "\\n",
        "\\u00e9",
    ),
    *(
        "~",
        "\n\n",
        "-",
        "0x1",
        "1e5",
        "😀",
        "@",
        "`",
        "\xa0",
        "foo bar",
        "\n    ",
        "%YAML 1.2\n---\n",
        "\\UFFFFFFFF",
    ),
)


class TestFuzz:
    @settings(max_examples=400)
    @given(st.lists(st.sampled_from(YAML_PIECES), max_size=14).map("".join))
    def test_both_parsers_agree(self, text: str) -> None:
        """What both accept is one tree, places included. Some odd tabs only libyaml takes."""
        ours, other = tree(text, False), tree(text, True)
        if ours is not None and other is not None:
            assert ours == other

    @settings(max_examples=200)
    @given(st.text(st.characters(), max_size=60))
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        tree(text, False)
        tree(text, True)

    @settings(max_examples=200)
    @given(st.binary(max_size=60))
    def test_any_bytes_are_parsed_or_refused(self, data: bytes) -> None:
        for text in (
            data.decode("latin-1"),
            data.decode("utf-8", "replace"),
            data.decode("utf-8", "surrogateescape"),
        ):
            tree(text, False)
            tree(text, True)

    @settings(max_examples=100)
    @given(st.data())
    def test_damaged_spec_is_parsed_or_refused(self, data: st.DataObject) -> None:
        text = TestPlaces.TEXT
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 5)))
        damaged = text[:start] + data.draw(st.sampled_from(["", *YAML_PIECES])) + text[end:]
        tree(damaged, False)
        tree(damaged, True)
