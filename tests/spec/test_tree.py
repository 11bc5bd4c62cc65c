"""Paths in a document tree, and the source place of every character of a scalar."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.spec.problems import Source, SourcePlace
from agentrun.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, node_at, place_at_path, plain_data
from agentrun.spec.yaml_parser import parse_yaml_document

SPEC = """\
name: support
tools:
  refund: {kind: python, call: "shop:refund"}
  docs:
    tools: ["search_*", get]
rules:
  - id: reads
  - {id: big}
"""


def source(text: str) -> Source:
    return Source(Path("/p/a.yaml"), "a.yaml", text)


def value_of(text: str) -> ScalarNode:
    node = node_at(parse_yaml_document(source(text)), ["a"])
    assert isinstance(node, ScalarNode)
    return node


def character(place: SourcePlace) -> str:
    line = place.source.line(place.line) or ""
    return line[place.column - 1 : place.column] or "\n"


class TestPaths:
    root: Node = parse_yaml_document(source(SPEC))

    def test_node_at_finds_nodes_by_path(self) -> None:
        assert isinstance(node_at(self.root, []), MappingNode)
        assert isinstance(node_at(self.root, ["rules"]), SequenceNode)
        call = node_at(self.root, ["tools", "refund", "call"])
        assert isinstance(call, ScalarNode)
        assert call.value == "shop:refund"
        for path in (["x"], ["name", "x"], ["rules", 2], ["rules", -1], ["rules", "0"], ["tools", 0]):
            assert node_at(self.root, path) is None  # type: ignore[arg-type]  # the test gives the right kind

    @pytest.mark.parametrize(
        ("path", "key", "line", "column"),
        [
            ([], False, 1, 1),
            (["name"], False, 1, 7),
            (["name"], True, 1, 1),
            (["tools", "refund"], False, 3, 11),
            (["tools", "refund"], True, 3, 3),
            (["tools", "refund", "call"], False, 3, 32),
            (["tools", "refund", "call"], True, 3, 26),
            (["tools", "docs", "tools", 1], False, 5, 25),
            (["tools", "docs", "tools", 1], True, 5, 25),
            (["rules", 1, "id"], True, 8, 6),
            (["rules", 0, "id"], False, 7, 9),
            (["tools", "refund", "url"], True, 3, 3),
            (["tools", "refund", "url", "deep", 3], True, 3, 3),
            (["tools", "refund", "url"], False, 3, 11),
            (["nothing"], True, 1, 1),
            (["rules", 9], False, 7, 3),
        ],
    )
    def test_place_at_path_of_keys_and_values(self, path: list[str | int], key: bool, line: int, column: int) -> None:
        place = place_at_path(self.root, path, key=key)
        assert (place.line, place.column) == (line, column)

    def test_plain_data_of_a_tree(self) -> None:
        assert plain_data(self.root) == {
            "name": "support",
            "tools": {
                "refund": {"kind": "python", "call": "shop:refund"},
                "docs": {"tools": ["search_*", "get"]},
            },
            "rules": [{"id": "reads"}, {"id": "big"}],
        }

    def test_plain_data_copies_aliases(self) -> None:
        data = plain_data(parse_yaml_document(source("a: &x [1]\nb: *x")))
        assert data["a"] == data["b"]
        assert data["a"] is not data["b"]


class TestInsideAScalar:
    @pytest.mark.parametrize(
        "text",
        [
            "a: plain text x",
            "a: 'single quoted'",
            'a: "double quoted"',
            "a: 'it''s here'",
            "a: &anchor plain text",
            "a: &anchor # why\n  'quoted'",
            "a: |\n  first\n  second\n\n  fourth {{ x }}\n",
            "a: |-\n    first\n      deeper\n    third",
            "a: |2\n    two more\n  first\n",
            "a: |+ # comment\n  x\n\n\n",
            "a: |\n\n\n  after blank lines\n",
            "a: >\n  folded\n  text\n\n  par\n    deeper\n    more\n\n  end\n",
            "a: >-\n\n  folded\n\n\n  text",
            "a: plain\n  over\n\n  lines",
            'a: "over\n  lines\n\n  and on"',
            'a: "tab\\tnewline\\n\\u00e9\\x41\\U0001F600 end"',
            'a: "joined \\\n  line"',
            'a: "joined \\\n\n  line"',
            "a: 'over\n\n\n  lines '' x'",
            "a: 日本 😀 text",
            "b: 1\na: x:y",
        ],
    )
    def test_every_character_of_a_scalar_has_its_place(self, text: str) -> None:
        node = value_of(text)
        for offset, char in enumerate(node.text):
            found = character(node.place_at(offset))
            assert found == char or found in "\n\\'" or (char == " " and found == "\n"), (offset, char, found)
        exact = [offset for offset, char in enumerate(node.text) if char.isalpha()]
        escaped = "\\" in text
        assert escaped or all(character(node.place_at(o)) == node.text[o] for o in exact)

    @pytest.mark.parametrize(
        ("text", "line", "column", "place"),
        [
            ("a: args.x > 1", 1, 6, (1, 9)),
            ("a: 'args.x > 1'", 1, 6, (1, 10)),
            ('a: "args.x > 1"', 1, 1, (1, 5)),
            ("b: 1\na: |\n  one\n  two {{\n", 2, 5, (4, 7)),
            ("b: 1\na: >\n  one\n  two\n\n  three\n", 2, 3, (6, 5)),
            ('a: "\\n\\nx y"', 3, 3, (1, 11)),
            ("a: |\n  one\n", 1, 99, (2, 6)),
            ("a: |\n  one\n", 9, 1, (1, 4)),
        ],
    )
    def test_place_at_line_inside_a_scalar(self, text: str, line: int, column: int, place: tuple[int, int]) -> None:
        found = value_of(text).place_at_line(line, column)
        assert (found.line, found.column) == place

    def test_place_at_the_end_and_outside_of_a_scalar(self) -> None:
        node = value_of("a: 'abc'  ")
        assert node.place_at(3, 2) == SourcePlace(node.place.source, 1, 8, 2)
        assert node.place_at(4) == node.place
        assert node.place_at(-1) == node.place

    def test_an_unknown_position_gives_the_start_of_the_scalar(self) -> None:
        node = value_of("a: 'abc'")
        other = ScalarNode("zzz", "zzz", node.place, "single", node.start, node.end)
        assert other.place_at(2) == node.place
        block = ScalarNode("zzz", "zzz", node.place, "literal", node.start, node.end)
        assert block.place_at(2) == node.place

    def test_missing_value_has_the_place_of_its_key(self) -> None:
        node = value_of("b: 1\na:\n")
        assert node.value is None
        assert (node.place.line, node.place.column) == (2, 1)
        assert node.place_at(0) == node.place

    @given(
        st.lists(st.text(st.sampled_from("ab {}'\":#\\é"), max_size=8), min_size=1, max_size=6),
        st.sampled_from(["|", "|-", "|+", ">", ">-"]),
        st.integers(1, 4),
    )
    def test_every_character_of_a_block_scalar_has_its_place(self, lines: list[str], header: str, indent: int) -> None:
        body = "\n".join(" " * indent + line if line.strip() else "" for line in ["first", *lines])
        node = value_of(f"b: 1\na: {header}\n{body}\n")
        for offset, char in enumerate(node.text):
            if char not in " \n":
                assert character(node.place_at(offset)) == char
