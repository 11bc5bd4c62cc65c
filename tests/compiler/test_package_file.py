"""Package files: a sealed package is read back unchanged, and any other file is refused."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.canonical_json import canonical_json, fingerprint
from agentrun.compiler import package_file as module
from agentrun.compiler.compile import compile, load
from agentrun.compiler.package_file import PackageFile, package_bytes, parse_package, read_package, seal_package
from agentrun.core.package import Package
from agentrun.errors import PackageError

from ..documents import document_with, write, yaml_text
from ..full_spec import RICH, project
from ..named_cases import case
from ..packages import package

PATH = Path("/p/a.package.json")
ESC = "\x1b]52;c;AAAA\x07\x1b[2J\u202e"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> PackageFile:
    return compile(project(tmp_path_factory.mktemp("rich")))


SMALL = seal_package(package())
DATA = package_bytes(SMALL)


def package_content() -> dict[str, Any]:
    """The content of a good package file."""
    content: dict[str, Any] = json.loads(DATA)
    return content


def parse_error(data: bytes) -> PackageError:
    with pytest.raises(PackageError) as caught:
        parse_package(data, PATH)
    shown = f"{caught.value} {caught.value.hint} {caught.value.fields}"
    assert shown.isprintable()
    assert len(shown) < 1000
    return caught.value


def code(data: bytes) -> str:
    return parse_error(data).code


# --- what comes back ----------------------------------------------------------------------------------------


def test_written_package_is_read_back(rich: PackageFile, tmp_path: Path) -> None:
    path = tmp_path / "rich.package.json"
    path.write_bytes(package_bytes(rich))
    for again in (read_package(path), load(path), load(str(path)), parse_package(package_bytes(rich), path)):
        assert again == rich
        assert package_bytes(again) == package_bytes(rich)


def test_loaded_package_has_the_key_order_of_the_compiled_one(tmp_path: Path) -> None:
    """The order of tools and properties is what a model sees: it cannot depend on where a package comes from."""
    spec = document_with(RICH, "tools", dict(reversed(RICH["tools"].items())))
    spec["output"]["schema"] = {"type": "object", "properties": {"z": {}, "a": {}, "ä": {}, "😀": {}, "\uffff": {}}}
    fresh = compile(project(tmp_path, spec))
    loaded = parse_package(package_bytes(fresh), PATH)
    assert msgspec.json.encode(loaded) == msgspec.json.encode(fresh)
    assert list(fresh.agent.tools) == sorted(RICH["tools"])


def test_package_file_is_canonical_json(rich: PackageFile) -> None:
    data = package_bytes(rich)
    assert data.endswith(b"}\n")
    assert b"\n" not in data[:-1]
    content = json.loads(data)
    assert list(content) == ["agent", "agentrun_package", "fingerprint", "sections"]
    assert content["agentrun_package"] == "1"
    assert content["fingerprint"].startswith("sha256:")
    assert list(content["sections"]) == list(content["agent"]) == sorted(Package.__struct_fields__)


NUMBERS = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "-1",
    "9007199254740991",
    "1e15",
    "9.1e15",
    "1e16",
    "1e20",
    "1e21",
    "123456789012e9",
    "1e300",
]
NUMBERS += ["1.5", "0.1", "1e-7", "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "-9007199254740991"]


def test_numbers_of_every_size_are_read_back(tmp_path: Path) -> None:
    """Doubles that are whole and beyond 2**53 are written like integers; they are read as what they were."""
    text = yaml_text(document_with(RICH, "model.options", {"x": "HERE"})).replace("HERE", f"[{', '.join(NUMBERS)}]")
    fresh = compile(_spec(tmp_path, text))
    loaded = parse_package(package_bytes(fresh), PATH)
    assert loaded == fresh
    assert loaded.agent.model.routes[0].options["x"] == [float(number) for number in NUMBERS]


def _spec(folder: Path, text: str) -> Path:
    spec = project(folder)
    write(folder, {"specs/rich.yaml": text})
    return spec


def test_control_characters_in_texts_are_kept(tmp_path: Path) -> None:
    """Texts are data: kept as they are, and no part of a message."""
    fresh = compile(project(tmp_path, document_with(RICH, "input", f"{ESC}</script>\0")))
    loaded = parse_package(package_bytes(fresh), PATH)
    assert loaded.agent.input == f"{ESC}</script>\0"


# --- what does not ------------------------------------------------------------------------------------------


def edit(change: Callable[[dict[str, Any]], Any]) -> bytes:
    content = package_content()
    change(content)
    return canonical_json(content) + b"\n"


def recompute(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """What an attacker makes of a changed package: the right fingerprints of wrong content."""
    content = package_content()
    change(content)
    content["fingerprint"] = fingerprint(content["agent"])
    content["sections"] = {name: fingerprint(section) for name, section in content["agent"].items()}
    return canonical_json(content) + b"\n"


WRONG_PRINT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "content changed": lambda c: c["agent"]["budgets"].update(turns=9999),
    "fingerprint changed": lambda c: c.update(fingerprint="sha256:" + "0" * 64),
    "upper case": lambda c: c.update(fingerprint=c["fingerprint"].upper()),
    "no algorithm": lambda c: c.update(fingerprint=c["fingerprint"][7:]),
    "empty": lambda c: c.update(fingerprint=""),
    "hostile fingerprint": lambda c: c.update(fingerprint=ESC * 1000),
    "only the whole recomputed": lambda c: (
        c["agent"]["budgets"].update(turns=9999),
        c.update(fingerprint=fingerprint(c["agent"])),
    ),
    "only the section recomputed": lambda c: (
        c["agent"]["budgets"].update(turns=9999),
        c["sections"].update(budgets=fingerprint(c["agent"]["budgets"])),
    ),
    "a section's fingerprint changed": lambda c: c["sections"].update(budgets=c["sections"]["limits"]),
}


@pytest.mark.parametrize("name", WRONG_PRINT)
def test_wrong_fingerprint_is_refused(name: str) -> None:
    error = parse_error(edit(WRONG_PRINT[name]))
    assert error.code == "package.fingerprint_mismatch"
    assert error.fields.keys() == {"place", "pointer", "pinned", "found", "sections"}


def test_fingerprint_mismatch_names_the_sections() -> None:
    error = parse_error(edit(WRONG_PRINT["content changed"]))
    assert error.fields["sections"] == ["budgets"]
    assert error.fields["pinned"] == SMALL.fingerprint
    assert error.fields["found"] != SMALL.fingerprint


WRONG_SHAPE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "extra section": lambda c: c["agent"].update(extra={}),
    "extra section that is null": lambda c: c["agent"].update(extra=None),
    "hostile section": lambda c: c["agent"].update({ESC * 100: 1}),
    "missing section": lambda c: c["agent"].pop("replay"),
    "missing section that was null": lambda c: c["agent"].pop("admission"),
    "extra key": lambda c: c.update(more=1),
    "hostile key": lambda c: c.update({ESC: 1}),
    "extra field": lambda c: c["agent"]["budgets"].update(more=1),
    "hostile field": lambda c: c["agent"]["budgets"].update({ESC * 1000: 1}),
    "missing field": lambda c: c["agent"]["budgets"].pop("turns"),
    "wrong type": lambda c: c["agent"]["budgets"].update(turns="many"),
    "wrong value": lambda c: c["agent"]["budgets"].update(on_turns=ESC),
    "unknown kind": lambda c: c["agent"].update(sinks={"x": {"kind": ESC}}),
}


@pytest.mark.parametrize("name", WRONG_SHAPE)
def test_invalid_content_with_right_fingerprints_is_refused(name: str) -> None:
    assert code(recompute(WRONG_SHAPE[name])) == "package.invalid"


def test_extra_or_missing_section_fingerprints_are_refused() -> None:
    """A name whose fingerprint is that of null would be in step with a section that is not there."""
    null = fingerprint(None)
    assert code(edit(lambda c: c["sections"].update(extra=null))) == "package.invalid"
    assert code(edit(lambda c: c["sections"].update({ESC: null}))) == "package.invalid"
    assert code(edit(lambda c: c["sections"].pop("input"))) == "package.invalid"
    assert code(edit(lambda c: c.update(sections={}))) == "package.invalid"


@pytest.mark.parametrize("value", [None, [], 5, {"a": 1}])
@pytest.mark.parametrize("key", ["agent", "sections", "fingerprint"])
def test_missing_agent_sections_or_fingerprint_is_refused(key: str, value: Any) -> None:
    assert code(edit(lambda c: c.update({key: value}))) == "package.invalid"
    assert code(edit(lambda c: c.pop(key))) == "package.invalid"


DEEP = b"[" * 100_000 + b"]" * 100_000
BYTES: dict[str, bytes] = {
    "nothing": b"",
    "a line end": b"\n",
    "no json": b"agentrun: 1\n",
    "half of it": DATA[: len(DATA) // 2],
    "no line end": DATA[:-1],
    "two line ends": DATA + b"\n",
    "crlf": DATA[:-1] + b"\r\n",
    "a space before": b" " + DATA,
    "byte order mark": b"\xef\xbb\xbf" + DATA,
    "utf-16": DATA.decode().encode("utf-16"),
    "utf-32": DATA.decode().encode("utf-32"),
    "not utf-8": DATA.replace(b"triage", b"tria\xff\xfe", 1),
    "half a surrogate": DATA.replace(b"triage", b"\\ud800", 1),
    "twice": DATA + DATA,
    "pretty": json.dumps(json.loads(DATA), indent=1).encode() + b"\n",
    "escaped": DATA.replace(b"triage", b"\\u0074riage", 1),
    "other order": json.dumps(dict(reversed(json.loads(DATA).items())), separators=(",", ":")).encode() + b"\n",
    "key twice": DATA.replace(b'{"agent":{', b'{"agent":{},"agent":{', 1),
    "inner key twice": DATA.replace(b'"turns":20', b'"turns":20,"turns":20', 1),
    "float for an integer": DATA.replace(b'"turns":20', b'"turns":20.0', 1),
    "exponent": DATA.replace(b'"turns":20', b'"turns":2e1', 1),
    "minus zero": DATA.replace(b'"temperature":0', b'"temperature":-0', 1),
    "nan": DATA.replace(b'"turns":20', b'"turns":NaN', 1),
    "infinity": DATA.replace(b'"turns":20', b'"turns":Infinity', 1),
    "too large for a double": DATA.replace(b'"turns":20', b'"turns":1e999', 1),
    "5,000 digits": DATA.replace(b'"turns":20', b'"turns":' + b"9" * 5000, 1),
    "a million digits": DATA.replace(b'"turns":20', b'"turns":' + b"9" * 1_000_000, 1),
    "deep": DEEP,
    "deep inside": DATA.replace(b'"turns":20', b'"turns":' + DEEP, 1),
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "17 MiB": b'"' + b"x" * 17 * 1024 * 1024 + b'"\n',
    "17 MiB of a package": DATA.replace(b"Answer briefly.", b"x" * 17 * 1024 * 1024, 1),
    "a list": b"[]\n",
    "null": b"null\n",
    "an empty object": b"{}\n",
    "another json file": b'{"name":"left-pad","version":"1.0.0"}\n',
}


@pytest.mark.parametrize("name", BYTES)
def test_file_that_is_not_canonical_json_is_refused(name: str) -> None:
    assert BYTES[name] != DATA
    assert code(BYTES[name]) == "package.invalid"


@pytest.mark.parametrize("version", ["0", "2", "1.0", "", 1, None, ["1"], ESC])
def test_unknown_package_version_is_refused_first(version: Any) -> None:
    """Said before anything else is looked at: the rest may be right in that version."""
    assert "version" in parse_error(edit(lambda c: c.update(agentrun_package=version))).message
    assert "version" in parse_error(canonical_json({"agentrun_package": version}) + b"\n").message


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_flipped_byte_is_refused(position: int, mask: int) -> None:
    data = bytearray(DATA)
    data[position] ^= mask
    parse_error(bytes(data))


@given(st.integers(0, len(DATA)), st.binary(min_size=1, max_size=4))
def test_inserted_or_removed_bytes_are_refused(position: int, more: bytes) -> None:
    parse_error(DATA[:position] + more + DATA[position:])
    parse_error(DATA[: position - len(more)] + DATA[position:] if position >= len(more) else DATA[position + 1 :])


@pytest.mark.parametrize("first", range(100, 1000, 70))
def test_deep_nesting_gives_a_package_error(first: int) -> None:
    """Wherever the stack gives out, on the way down or on the way back, it is the same error."""
    for depth in range(first, min(first + 70, 1000), 7):
        with case(depth):
            _check_nesting(depth)


def _check_nesting(depth: int) -> None:
    inner: Any = 1
    for _ in range(depth):
        inner = {"a": inner}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)  # whoever made the file had a larger stack
    try:
        data = recompute(lambda c: c["agent"].update(params={"x": inner}))
    finally:
        sys.setrecursionlimit(limit)
    with contextlib.suppress(PackageError):
        parse_package(data, PATH)


# --- order of checks ----------------------------------------------------------------------------------------


def test_no_model_is_built_before_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are made last; a package that fails earlier never becomes one."""
    made: list[Any] = []
    real = msgspec.convert

    def convert(value: Any, kind: Any) -> Any:
        made.append(kind)
        return real(value, kind)

    monkeypatch.setattr(msgspec, "convert", convert)
    for data in (*BYTES.values(), *(edit(change) for change in WRONG_PRINT.values())):
        with pytest.raises(PackageError):
            parse_package(data, PATH)
    assert made == []
    parse_package(DATA, PATH)
    assert made == [PackageFile]


def test_size_limit_is_checked_before_parsing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_decode_json", lambda _: pytest.fail("decoded"))
    assert "16 MiB" in parse_error(BYTES["17 MiB"]).message
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(PackageError, match="16 MiB"):
        read_package(path)


@pytest.mark.parametrize("path", ["missing.json", ".", "a\0b", "x" * 5000])
def test_unreadable_package_file_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(PackageError) as caught:
        load(tmp_path / path)
    assert caught.value.code == "package.invalid"
