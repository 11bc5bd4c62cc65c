"""Python functions of tools, read from source without importing it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from agentrun.compiler import compile
from agentrun.compiler.compile import compile_spec
from agentrun.compiler.lint import lint_spec
from agentrun.compiler.python_functions import MAX_MODULE_WORDS, FunctionRefused, find_function
from agentrun.core.package_tools import PythonTool
from agentrun.spec.project import Project

from ..projects import FoundProblem, agent, find_problems, write_project
from ..steps import at_most

POLICY = "policy: {default: allow}\n"


def tool(folder: Path, source: str | bytes, call: str = "tools_of_mine:f", extra: str = "") -> list[FoundProblem]:
    """What is said about a function of a module with this source."""
    files: dict[str, str | bytes] = {"tools_of_mine.py": source}
    return find_problems(folder, f'{POLICY}tools: {{t: {{kind: python, call: "{call}"{extra}}}}}\n', files)


def schema(folder: Path, signature: str, doc: str = "Does it.", before: str = "") -> Any:
    """The schema of the arguments of `def f(…)`, as the package has it; the message when there is none."""
    problems = tool(folder, f'{before}def f({signature}):\n    """{doc}"""\n')
    return problems[0].message if problems else made_tool(folder).args


def made_tool(folder: Path) -> PythonTool:
    """The tool in the package of the spec that `tool` wrote."""
    package = compile_spec(folder / "spec.yaml").package
    assert package is not None
    made = package.tools["t"]
    assert isinstance(made, PythonTool)
    return made


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
CLASSES = """
Size = Literal["s", "m"]
Sizes: TypeAlias = "list[Size]"
class Order(TypedDict, total=False):
    \"\"\"An order.\"\"\"
    id: Required[str]
    size: Size
    lines: "list[int]"
class Model(BaseModel):
    a: int
@dataclass
class Data:
    a: int
class Color(Enum):
    red = "red"
class Tree(TypedDict):
    children: "list[Tree]"
class Mixed(TypedDict, Model):
    a: int
Loop = "Loop"
B5 = int
B4 = tuple[B5, B5, B5, B5, B5, B5, B5, B5]
B3 = tuple[B4, B4, B4, B4, B4, B4, B4, B4]
B2 = tuple[B3, B3, B3, B3, B3, B3, B3, B3]
B1 = tuple[B2, B2, B2, B2, B2, B2, B2, B2]
Bomb = tuple[B1, B1, B1, B1, B1, B1, B1, B1]
Elsewhere = make()
"""
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": STRING,
        "size": {"enum": ["s", "m"]},
        "lines": {"type": "array", "items": INTEGER},
    },
    "required": ["id"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("str", STRING),
        ("int", INTEGER),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("list", {"type": "array"}),
        ("dict", {"type": "object"}),
        ("None", NULL),
        ("list[str]", {"type": "array", "items": STRING}),
        ("list[list[int]]", {"type": "array", "items": {"type": "array", "items": INTEGER}}),
        ("dict[str, int]", {"type": "object", "additionalProperties": INTEGER}),
        ("str | None", {"anyOf": [STRING, NULL]}),
        ("str | int | None", {"anyOf": [STRING, INTEGER, NULL]}),
        ("Optional[str]", {"anyOf": [STRING, NULL]}),
        ("typing.Optional[int]", {"anyOf": [INTEGER, NULL]}),
        ("Optional[str | int]", {"anyOf": [STRING, INTEGER, NULL]}),
        ('Literal["a", "b"]', {"enum": ["a", "b"]}),
        ("Literal[1]", {"enum": [1]}),
        ("typing.Literal[True, None, 3]", {"enum": [True, None, 3]}),
        ('"str"', STRING),
        ('"list[int] | None"', {"anyOf": [{"type": "array", "items": INTEGER}, NULL]}),
        ("\"Literal['x']\"", {"enum": ["x"]}),
        ("Literal[-1, 2]", {"enum": [-1, 2]}),
        ("Union[str, int]", {"anyOf": [STRING, INTEGER]}),
        ("typing.Union[str, None]", {"anyOf": [STRING, NULL]}),
        ("List[str]", {"type": "array", "items": STRING}),
        ("Sequence[str]", {"type": "array", "items": STRING}),
        ("typing.Dict[str, int]", {"type": "object", "additionalProperties": INTEGER}),
        ("Mapping[str, int]", {"type": "object", "additionalProperties": INTEGER}),
        ("tuple[int, ...]", {"type": "array", "items": INTEGER}),
        ("tuple[int, str]", {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2}),
        ("Annotated[str, 1]", STRING),
        ("Annotated[int, 'How many.']", {**INTEGER, "description": "How many."}),
        ("Annotated[int, Doc('How many.')]", {**INTEGER, "description": "How many."}),
        (
            "Annotated[int, Field(description='How many.', ge=1, lt=10, title='N')]",
            {**INTEGER, "description": "How many.", "minimum": 1, "exclusiveMaximum": 10},
        ),
        ("Annotated[float, Field(gt=-0.5)]", {"type": "number", "exclusiveMinimum": -0.5}),
        ("Annotated[str, Meta(min_length=1, max_length=9)]", {**STRING, "minLength": 1, "maxLength": 9}),
        ("Annotated[list[str], Field(min_length=1)]", {"type": "array", "items": STRING, "minItems": 1}),
        ("Annotated[str, Field(ge=1, min_length=x)]", STRING),
        ("Size", {"enum": ["s", "m"]}),
        ("Sizes", {"type": "array", "items": {"enum": ["s", "m"]}}),
        ("Order", ORDER),
        ("list[Order]", {"type": "array", "items": ORDER}),
    ],
)
def test_annotation_becomes_a_schema(tmp_path: Path, annotation: str, expected: Any) -> None:
    assert schema(tmp_path, f"a: {annotation}", before=CLASSES)["properties"] == {"a": expected}


@pytest.mark.parametrize(
    "annotation",
    [
        "Any",
        "object",
        "Path",
        "datetime",
        "bytes",
        "complex",
        "set[str]",
        "list[Path]",
        "dict[int, str]",
        "dict[str, Path]",
        "tuple[()]",
        "tuple[Path, ...]",
        "Annotated[Path, 'where']",
        "Union[str, Path]",
        "Sequence[Path]",
        "Model",
        "Data",
        "Color",
        "Tree",
        "Mixed",
        "Loop",
        "Bomb",
        "Elsewhere",
        "str | Path",
        "str & int",
        "Literal[b'x']",
        "Literal[1.5]",
        "Literal[...]",
        "Literal[()]",
        "Literal[x]",
        "Literal[1e999]",
        "Literal[" + "9" * 4000 + "]",
        "Literal[9007199254740992]",
        'Literal["\\ud800"]',
        "'not python'",
        "'str | '",
        "'" + "(" * 300 + "'",
        "list[" * 20 + "int" + "]" * 20,
        "lambda: 0",
        "__import__('os').system('true')",
        "str if 1 else int",
        "[str]",
        "1",
        "x.str",
    ],
)
def test_unreadable_annotation_is_reported(tmp_path: Path, annotation: str) -> None:
    message = schema(tmp_path, f"a: {annotation}", before=CLASSES)
    assert message == 'agentrun cannot read the annotation of "a" in the signature of "tools_of_mine:f"'


@pytest.mark.parametrize(
    ("signature", "required", "names"),
    [
        ("", [], []),
        ("a: int", ["a"], ["a"]),
        ("a: int, b: str = 'x'", ["a"], ["a", "b"]),
        ("a: int = 1, *, b: str, c: int = 2", ["b"], ["a", "b", "c"]),
        ("*, a: int", ["a"], ["a"]),
        ("a: int = __import__('os').system('touch imported')", [], ["a"]),
    ],
)
def test_parameters_become_properties(tmp_path: Path, signature: str, required: list[str], names: list[str]) -> None:
    found_schema = schema(tmp_path, signature)
    assert found_schema["required"] == required
    assert list(found_schema["properties"]) == names
    assert found_schema["additionalProperties"] is False
    assert not list(tmp_path.glob("**/imported"))


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("*args: int", 'agentrun cannot read *args or **kwargs in the signature of "tools_of_mine:f"'),
        (
            "**kwargs: int",
            'agentrun cannot read *args or **kwargs in the signature of "tools_of_mine:f"',
        ),
        ("a", 'agentrun cannot read the annotation of "a" in the signature of "tools_of_mine:f"'),
        ("a: int, /", '"tools_of_mine:f" has the positional-only parameter "a"'),
        ("a: int, a: int", "is not valid Python"),
        ("a: int, b", 'agentrun cannot read the annotation of "b" in the signature of "tools_of_mine:f"'),
    ],
)
def test_unsupported_parameter_is_reported(tmp_path: Path, signature: str, message: str) -> None:
    assert message in schema(tmp_path, signature)


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: int):\n    'd'\n",
        "async def f(a: int):\n    'd'\n",
        "@decorated\n@twice(1)\ndef f(a: int):\n    'd'\n",
        "import nothing_like_this\ndef f(a: int):\n    'd'\n",
        "def f(a: str):\n    'old'\ndef f(a: int):\n    'd'\n",  # the last one counts, as in Python
        "# -*- coding: latin-1 -*-\ndef f(a: int):\n    'd'\n",
        "\ufeffdef f(a: int):\r\n    'd'\r\n",
        'x = "\\d"\ndef f(a: int):\n    "d"\n',  # Python warns of this; it must not reach anybody's terminal
    ],
)
def test_function_is_found(tmp_path: Path, source: str) -> None:
    assert tool(tmp_path, source) == []
    package = compile_spec(tmp_path / "spec.yaml").package
    assert package is not None
    made = package.tools["t"]
    assert isinstance(made, PythonTool)
    assert (made.description, made.args["properties"]) == ("d", {"a": INTEGER})


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        ("def g(): pass\n", 'has no function "f"', "at the top level of the module"),
        ("def ff(): pass\n", 'has no function "f"', 'did you mean "ff"?'),
        ("def g():\n    def f(): pass\n", 'has no function "f"', "at the top level"),
        ("class C:\n    def f(self): pass\n", 'has no function "f"', "at the top level"),
        ("if True:\n    def f(): pass\n", 'has no function "f"', "at the top level"),
        ("f = lambda: 0\n", 'has no function "f"', "at the top level"),
        ("from os import system as f\n", 'has no function "f"', "at the top level"),
        ("class f: pass\n", 'has no function "f"', "at the top level"),
        ("def f(:\n", "is not valid Python, line 1", None),
        ("\n\nx = = 1\n", "is not valid Python, line 3", None),
        ("return 1; def f(): pass\n", "is not valid Python", None),
        ("x = " + "-" * 30_000 + "1\n", "cannot be read as Python", None),
        ("x = " + "(" * 300 + ")" * 300, "is not valid Python", None),
        ("x = a" + ".b" * 19_000 + "\n", "cannot be read as Python", None),
        ("x = 1" + "+1" * 19_000 + "\n", "cannot be read as Python", None),
        ("x;" * 500_000, "is too large", "40,000 tokens"),
        ('x = f"' + "{x}" * 80_000 + '"', "is too large", "40,000 tokens"),
        ("def f(" + ",".join(f"a{n}: int" for n in range(60_000)) + "): pass", "is too large", "40,000"),
    ],
)
def test_missing_or_unusable_function_is_reported(tmp_path: Path, source: str, message: str, hint: str | None) -> None:
    with at_most(500_000):
        (problem,) = tool(tmp_path, source)
    assert problem.code == "spec.python"
    assert message in problem.message
    assert (hint or "") in (problem.hint or "")


def test_large_module_is_read_once_for_many_tools(tmp_path: Path) -> None:
    """Also when many tools are in it."""
    source = "x = 1\n" * (MAX_MODULE_WORDS // 4 - 20) + "def f(a: int):\n    'd'\n" + "def g(a: int):\n    'd'\n"
    files: dict[str, str | bytes] = {"m.py": source}
    tools = ", ".join(f'{"pqrstuvw"[n % 8]}{n // 8}a: {{kind: python, call: "m:{"fg"[n % 2]}"}}' for n in range(80))
    with at_most(1_400_000):
        assert find_problems(tmp_path, f"{POLICY}tools: {{{tools}}}\n", files) == []


# --- where modules are (THREATS 14) -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", ["os:system", "builtins:eval", "subprocess:run", "sys:exit", "os.path:join", "shutil:rmtree"]
)
def test_standard_library_module_is_refused(tmp_path: Path, call: str) -> None:
    module = call.partition(":")[0].partition(".")[0]
    expected = f'"{module}" is a module of Python\'s standard library'
    assert [problem.message for problem in tool(tmp_path, "", call)] == [expected]
    # Also when the project has a file of that name: importing it would give Python's own.
    files: dict[str, str | bytes] = {f"{module}.py": f"def {call.partition(':')[2]}(): pass\n"}
    spec = f'{POLICY}tools: {{t: {{kind: python, description: d, call: "{call}"}}}}\n'
    assert [problem.message for problem in find_problems(tmp_path, spec, files)] == [expected]


@pytest.mark.parametrize(
    "call", ["yaml:safe_load", "agentrun.cli:main", "jinja2.sandbox:SandboxedEnvironment", "pip:main"]
)
def test_module_outside_the_project_is_refused(tmp_path: Path, call: str) -> None:
    (problem,) = tool(tmp_path, "", call)
    assert problem.message == f'module "{call.partition(":")[0]}" is not in this project'
    assert "import_roots" in (problem.hint or "")


@pytest.mark.parametrize(
    ("call", "hint"), [("tool_of_mine:f", 'did you mean "tools_of_mine.py"?'), ("tools_of_mine.f", "tools_of_mine:f")]
)
def test_misspelt_module_and_dot_instead_of_colon_get_a_hint(tmp_path: Path, call: str, hint: str) -> None:
    assert hint in (tool(tmp_path, "def f() -> None: pass\n", call)[0].hint or "")


@pytest.mark.parametrize(
    "call", ["..evil:f", "evil.:f", ".:f", "a..b:f", "a.b.:f", "_:f", "ä:f", "f", "a:b:c", "a:b.c", "a/b:f"]
)
def test_invalid_module_name_is_refused(tmp_path: Path, call: str) -> None:
    codes = {problem.code for problem in tool(tmp_path, "", call)}
    assert codes <= {"spec.python", "spec.wrong_text"}
    assert codes


def test_symlinked_modules_and_folders_are_refused(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    for folder in (outside, project / "real", project / "package", project / "folder.py"):
        folder.mkdir(parents=True)
    (outside / "evil.py").write_text("def f():\n    'd'\n")
    (project / "linked.py").symlink_to(outside / "evil.py")
    (project / "inside.py").symlink_to(project / "real.py")
    (project / "way").symlink_to(outside)
    (project / "package" / "__init__.py").write_text("def f():\n    'd'\n")
    (project / "real" / "deep.py").write_text("def f():\n    'd'\n")
    expected = {
        "linked:f": "spec.file_outside",
        "inside:f": "spec.file_outside",
        "way.evil:f": "spec.file_outside",
        "folder:f": "spec.file_unreadable",
        "package:f": None,
        "real.deep:f": None,
        "real:f": "spec.python",
    }
    for call, code in expected.items():
        reported = find_problems(project, f'{POLICY}tools: {{t: {{kind: python, call: "{call}"}}}}\n')
        assert [problem.code for problem in reported] == ([code] if code else []), call
        assert str(outside) not in str(reported)


def test_import_roots_are_searched_in_order(tmp_path: Path) -> None:
    for root, name in (("one", "f"), ("two", "g")):
        (tmp_path / root).mkdir()
        (tmp_path / root / "both.py").write_text(f"def {name}():\n    'd'\n")
    (tmp_path / "two" / "only.py").write_text("def f():\n    'd'\n")
    project = Project(tmp_path, import_roots=("one", "two"))
    assert find_function(project, "both:f").name == "f"
    assert find_function(project, "only:f").module == "only"
    with pytest.raises(FunctionRefused, match='has no function "g"'):
        find_function(project, "both:g")


# --- texts of a function ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        ('"""One line."""', "One line."),
        ('"""One\n    paragraph.\n\n    And another.\n    """', "One paragraph."),
        ('"""  spaces  """', "spaces"),
        ("r'''raw \\d'''", "raw \\d"),
        ("'a' 'b'", "ab"),
    ],
)
def test_first_paragraph_of_the_docstring_is_the_description(tmp_path: Path, doc: str, expected: str) -> None:
    assert tool(tmp_path, f"def f(a: int):\n    {doc}\n") == []
    package = compile_spec(tmp_path / "spec.yaml").package
    assert package is not None
    assert package.tools["t"].description == expected


@pytest.mark.parametrize("doc", ["pass", "f'no'", "b'no'", "''", "'   '", '"\\ud800"', "5"])
def test_missing_docstring_is_a_warning(tmp_path: Path, doc: str) -> None:
    assert [problem.code for problem in tool(tmp_path, f"def f(a: int):\n    {doc}\n")] == ["spec.no_description"]
    assert tool(tmp_path, f"def f(a: int):\n    {doc}\n", extra=", description: d") == []
    assert compile_spec(tmp_path / "spec.yaml").package is not None


def test_too_long_first_paragraph_is_reported(tmp_path: Path) -> None:
    assert tool(tmp_path, f"def f(a: int):\n    '{'x' * 4096}'\n") == []
    (problem,) = tool(tmp_path, f"def f(a: int):\n    '{'x' * 4097}'\n")
    assert (problem.code, problem.hint) == (
        "spec.python",
        "begin with a short paragraph for the model, or add a `description:` to the tool",
    )


GOOGLE = """Does it.

    More about it.

    Args:
        a: The first one,
            on two lines.
        b (int, optional): The second: with a colon.
        nobody: Is not there.

    Returns:
        a: nothing.
    """
NUMPY = """Does it.

    Parameters
    ----------
    a : str
        The first one,
        on two lines.
    b : int, optional
        The second: with a colon.

    Returns
    -------
    str
        c : nothing
    """
REST = """Does it.

    :param a: The first one,
        on two lines.
    :param int b: The second: with a colon.
    :returns: nothing
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_parameters_are_described_by_the_docstring(tmp_path: Path, doc: str) -> None:
    made = schema(tmp_path, "a: str, b: int = 3, c: Annotated[str, 'Its own.'] = ''", doc)
    assert made["properties"] == {
        "a": {"type": "string", "description": "The first one, on two lines."},
        "b": {"type": "integer", "description": "The second: with a colon.", "default": 3},
        "c": {"type": "string", "description": "Its own."},
    }
    assert made["required"] == ["a"]


@pytest.mark.parametrize(
    "doc",
    [
        "Does it. Args: a: no section.",
        "Args",
        "Args:\n\n",
        "Args:\n    : x\n    a",
        "Parameters\n---",
        "Parameters\n----\n",
        ":param:",
        ":param a:",
        "Args:\n    a: \\ud800",
        "Args:\n" + "    x: y\n" * 5000 + "    a: too far down",
    ],
)
def test_docstring_without_the_parameter_gives_no_description(tmp_path: Path, doc: str) -> None:
    assert schema(tmp_path, "a: str", f"Does it.\n\n{doc}")["properties"] == {"a": {"type": "string"}}


@pytest.mark.parametrize("size", [1000, 100_000])
def test_long_parameter_description_is_cut(tmp_path: Path, size: int) -> None:
    made = schema(tmp_path, "a: str", f"Does it.\n\nArgs:\n    a: {'x' * size}")
    assert made["properties"]["a"]["description"] == "x" * 1000


@pytest.mark.parametrize(
    ("default", "said"),
    [("1", 1), ("-1.5", -1.5), ("True", True), ("'x'", "x"), ("None", ...), ("''", ...), ("[]", ...), ("f()", ...)],
)
def test_literal_defaults_are_in_the_schema(tmp_path: Path, default: str, said: Any) -> None:
    made = schema(tmp_path, f"a: str | int | float | bool | None = {default}")
    assert made["properties"]["a"].get("default", ...) == said
    assert made["required"] == []


@pytest.mark.parametrize(
    ("default", "filled_in"),
    [
        ("''", ""),
        ("[]", []),
        ("['a', -1, [True]]", ["a", -1, [True]]),
        ("{}", {}),
        ("{'a': {'b': []}}", {"a": {"b": []}}),
        ("1", ...),
        ("None", ...),
        ("[None]", ...),
        ("[f()]", ...),
        ("{1: 2}", ...),
        ("{**f()}", ...),
        ("{'a': f()}", ...),
        ("()", ...),
        ("SIZE", ...),
        ("b''", ...),
    ],
)
def test_literal_defaults_that_are_not_in_the_schema_are_in_the_tool(
    tmp_path: Path, default: str, filled_in: Any
) -> None:
    """The model does not read them. A number is in the schema already."""
    properties = schema(tmp_path, f"a: str | list | dict | int | None = {default}")["properties"]
    assert made_tool(tmp_path).defaults == (UNSET if filled_in is ... else {"a": filled_in})
    assert properties["a"].get("default", 1) == 1


@pytest.mark.parametrize(
    ("args", "filled_in"),
    [
        ("{type: object, properties: {a: {type: string}, b: {type: integer}}}", {"a": "", "b": 5}),
        ("{type: object, properties: {a: {type: string}, b: {type: integer}}, required: [a, b]}", UNSET),
        ("{type: object, properties: {a: {type: string, default: x}, b: {type: integer}}}", {"b": 5}),
        ("{type: object, properties: {a: true}}", UNSET),
    ],
)
def test_declared_arguments_get_the_defaults_of_the_signature(tmp_path: Path, args: str, filled_in: Any) -> None:
    assert tool(tmp_path, 'def f(a: Path = \'\', b=5):\n    """Does it."""\n', extra=f", args: {args}") == []
    assert made_tool(tmp_path).defaults == filled_in


# --- declared arguments against the function ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "args", "messages"),
    [
        ("a: Path", "{type: object, properties: {a: true}, required: [a]}", []),
        ("a=1", "{type: object, properties: {a: true}}", []),
        ("**kw", "{type: object, properties: {anything: true}}", []),
        ("a", "{type: object, properties: {b: true}, required: [b]}", ["has no parameter", "needs"]),
        ("a, b=1", "{type: object, properties: {a: true}}", ["needs"]),
        ("abc", "{type: object, properties: {abd: true}, required: [abc]}", ["has no parameter"]),
        ("a", "{type: object, additionalProperties: true}", []),  # anything may come
        ("a", "{type: object, required: 5}", ["not a valid JSON Schema"]),
        ("a: int", "{type: object, properties: {a: {type: integer}}, required: [a]}", []),
        ("a: float", "{type: object, properties: {a: {type: integer}}, required: [a]}", []),
        ("a: str", "{type: object, properties: {a: {type: integer}}, required: [a]}", ["as string, not as integer"]),
        ("a: int", "{type: object, properties: {a: {type: number}}, required: [a]}", ["as integer, not as number"]),
        ("a: list[str]", "{type: object, properties: {a: {type: object}}, required: [a]}", ["as array, not as object"]),
        ("a: str | None", "{type: object, properties: {a: {type: integer}}, required: [a]}", []),
        ("a: str", "{type: object, properties: {a: {enum: [1]}}, required: [a]}", []),
        ("a: Path", "{type: object, properties: {a: {type: integer}}, required: [a]}", []),
    ],
)
def test_declared_arguments_must_match_the_function(
    tmp_path: Path, signature: str, args: str, messages: list[str]
) -> None:
    reported = tool(tmp_path, f"def f({signature}):\n    'd'\n", extra=f", args: {args}")
    assert len(reported) == len(messages)
    assert all(any(part in problem.message for problem in reported) for part in messages)
    assert {problem.code for problem in reported} <= {"spec.args", "spec.json_schema"}


# --- nothing is imported ------------------------------------------------------------------------------------


def test_no_user_module_is_imported(tmp_path: Path) -> None:
    """A module that would leave a file when it is imported, or even compiled into a cache, leaves none."""
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'imported')!r}).touch()\nraise SystemExit\n"
    files: dict[str, str | bytes] = {
        "trap/__init__.py": trap,
        "trap/inner.py": trap + "def f(a: int = print('x')):\n    'd'\n",
        "hooked.py": trap + "def h(question): pass\n",
        "conftest.py": trap,
        "sitecustomize.py": trap,
    }
    hook = 'hooks: [{id: h, at: on_stop, call: "hooked:h"}]\n'
    text = f'{POLICY}tools: {{t: {{kind: python, call: "trap.inner:f"}}}}\n{hook}'
    write_project(tmp_path, {"spec.yaml": agent(text), **files})
    before = set(sys.modules)
    assert compile_spec(tmp_path / "spec.yaml").problems == ()
    assert not {"trap", "trap.inner", "hooked"} & (set(sys.modules) - before)
    assert not (tmp_path / "imported").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_variables_need_a_process(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"m.py": 'def f() -> None:\n    "Does it."\n'}
    tool_text = 'kind: python, call: "m:f", env: {SHOP_TOKEN: "${SHOP_TOKEN}"}'
    (problem,) = find_problems(tmp_path, f"{POLICY}tools: {{t: {{{tool_text}}}}}\n", files)
    assert (problem.code, problem.message) == ("spec.python", "`env` works only with `isolation: process`")
    assert find_problems(tmp_path, f"{POLICY}tools: {{t: {{{tool_text}, isolation: process}}}}\n", files) == []


def test_module_that_vanishes_after_the_check_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, 'def f():\n    """Does it."""\n')

    def check_and_remove(*args: Any) -> Any:
        found = lint_spec(*args)
        (tmp_path / "tools_of_mine.py").unlink()
        return found

    monkeypatch.setattr(compile, "lint_spec", check_and_remove)
    result = compile_spec(tmp_path / "spec.yaml")
    assert (result.package, [problem.code for problem in result.problems]) == (None, ["spec.python"])
