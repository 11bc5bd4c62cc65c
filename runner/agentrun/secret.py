"""`Secret`, a value that is never printed, and the search for literal credentials by their shape.

Rule 1  Only `reveal()` returns the value of a `Secret`. It prints and encodes as `***` and cannot be pickled.
Rule 2  Without a key, only unmistakable shapes are reported: prompts, hashes, UUIDs and names are not.
Rule 3  Under a key that names a credential (`api_key`, `token` …) a random-looking value is reported too, unless
        it is a reference (`${NAME}`), a template, a plain word or an obvious placeholder.
Rule 4  `mask` is for printing and hides more than `find_secrets` reports: better too much than a key.
Rule 5  Patterns run in RE2, so the time is linear even for a megabyte of hostile text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from hmac import compare_digest
from math import log2
from typing import Any, Never

import re2

MASK = "***"

_compile: Callable[[str], Any] = re2.compile  # google-re2 ships no type information
_SHAPES = {
    "anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{16,}",
    "openai key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "google key": r"\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}",
    "aws key id": r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    "github token": r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
    "gitlab token": r"\bglpat-[A-Za-z0-9_-]{16,}",
    "slack token": r"\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}",
    "stripe key": r"\b(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{30,}",
    "hugging face token": r"\bhf_[A-Za-z0-9]{30,}",
    "service key": r"\b(?:gsk_|xai-|pplx-|r8_|dop_v1_)[A-Za-z0-9]{30,}|\btvly-[A-Za-z0-9-]{20,}"
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "json web token": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "private key": r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*",
    "bearer token": r"(?i:\bbearer)\s+[A-Za-z0-9._~+/=-]{20,}",
    "password in a url": r"""://[^\s/?#:@"]*:[^\s/?#@"]+@""",
}
_KINDS = list(_SHAPES)
_shape = _compile("|".join(f"({pattern})" for pattern in _SHAPES.values()))
# Every shape contains one of these, so a few substring searches rule out most texts.
_MARK_LIST = """
    sk- AIza ya29. AKIA ASIA ABIA ACCA ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox xapp- sk_ rk_ whsec_
    npm_ hf_ gsk_ xai- pplx- r8_ dop_v1_ tvly- SG. eyJ -----BEGIN earer EARER
"""
_MARKS = tuple(_MARK_LIST.split())
_SHORTEST = 8
_MAX_FINDINGS = 1000
"""After this many findings the rest of a text is hidden: no normal text has so many, and each costs 10 µs."""
_placeholder = _compile(
    r"(?i)x{5,}|\*{3,}|\.{3}|…|<|example|placeholder|redacted|change[_-]?me|your[_-]|\bdummy|insert[_-]|replace[_-]"
)
_own_placeholder = _compile(r"(?s)^\[redacted:[A-Za-z0-9_.-]{1,128}\].?$")
_reference = _compile(r"\$\{|\$[A-Za-z_]|\{\{|\{%")
_credential = _compile(
    r"(?:^|_)(?:(?:api|access|secret|private|signing|encryption|account|auth|subscription|license)_?key|apikey|secret|token"
    r"|password|passwd|passphrase|pwd|authorization|credentials?|bearer|cookie)$"
)
_camel = _compile(r"([a-z0-9])([A-Z])")
_scheme = _compile(r"(?i)^(?:bearer|basic|token|apikey|digest)\s+")
_digest = _compile(r"^(?:md5|sha[0-9]{1,3})[:-]")
_words = _compile(r"^(?:[A-Za-z]{0,15}[0-9]{0,3}(?:[-_./: ]+|$))+$")
_letters = _compile(r"^[A-Za-z_./: -]*$")
_not_in_names = _compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME = 60
_pair = _compile(
    r"(?i)([A-Za-z0-9_.-]{0,40}(?:key|secret|token|password|passwd|passphrase|pwd|authorization|credentials?|bearer|cookie))"
    r"""["']?\s*[:=]\s*["']?(?:bearer\s+|basic\s+)?([^\s"',;}\]]{6,})"""
)


class Secret:
    """A value that is never printed. Compared by value (in constant time), hashed by identity."""

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = (s.reveal().encode("utf-8", "surrogatepass") for s in (self, other))
        return compare_digest(mine, theirs)

    # By identity, so that no hash of the value is kept in memory or in a dump.
    __hash__ = object.__hash__

    def __deepcopy__(self, *_: object) -> Secret:
        return self

    def __setattr__(self, *_: object) -> Never:
        raise AttributeError("a Secret cannot be changed")

    def __reduce_ex__(self, *_: object) -> Never:
        raise TypeError("a Secret cannot be pickled")

    __copy__, __delattr__, __getstate__ = __deepcopy__, __setattr__, __reduce_ex__


def enc_hook(value: Any) -> Any:
    """For msgspec encoders: write a secret as `***`, and raise for other unknown types."""
    if isinstance(value, Secret):
        return MASK
    raise NotImplementedError(f"objects of type {type(value).__name__} cannot be encoded")


@lru_cache(maxsize=1024)
def names_credential(key: str) -> bool:
    """Whether a key (`api_key`, `x-api-key`, `clientSecret` …) names a credential."""
    plain = _camel.sub(r"\1_\2", key[-80:]).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return _credential.search(plain) is not None


def find_secrets(text: str, key: str | None = None) -> list[tuple[int, int, str]]:
    """Literal credentials in a text, in order: (start, end, kind). `key` is the mapping key or field of the text."""
    text = _searchable(text)
    found = [span for span in _find_shapes(text) if _is_real(text[span[0] : span[1]], span[2])]
    if not found and key is not None and names_credential(key):
        value = text.strip()
        scheme = _scheme.search(value)
        rest = value[scheme.end() :] if scheme else value
        if looks_random(rest):
            start = text.index(rest)
            found.append((start, start + len(rest), "credential"))
    return found


def placeholder_name(kind: str, key: str | None = None) -> str:
    """The name of a found credential in its placeholder: its kind, or the key whose value it is."""
    name = key if kind == "credential" and key and not find_secrets(key) else kind
    clean: str = _not_in_names.sub("-", name[-_LONGEST_NAME:])
    return clean


def placeholder(name: str) -> str:
    """The text that replaces a value. A name has no brackets in it."""
    return f"[redacted:{name}]"


def redact_shapes(text: str) -> str:
    """Replace keys of a known shape by placeholders with their kind, as cassettes have them."""
    pieces, at = [], 0
    for start, end, kind in find_secrets(text):
        pieces += [text[at:start], placeholder(placeholder_name(kind))]
        at = end
    return "".join([*pieces, text[at:]])


def mask(text: str) -> str:
    pieces, end = [], 0
    for start, stop in mask_spans(text):
        pieces += [text[end:start], MASK]
        end = stop
    return "".join([*pieces, text[end:]]) if pieces else text


def mask_spans(text: str) -> list[tuple[int, int]]:
    """The spans that `mask` hides: every shape, and the values of `token: …` and `api_key=…` inside the text.

    A placeholder after `token: ` is not masked, because it says which secret it was.
    """
    if len(text) < _SHORTEST:
        return []
    text = _searchable(text)
    spans = [(start, end) for start, end, _ in _find_shapes(text)]
    for count, match in enumerate(_pair.finditer(text)):
        if count == _MAX_FINDINGS:
            spans.append((match.start(), len(text)))
            break
        if names_credential(match[1]) and not _letters.search(match[2]) and not _reference.search(match[2]):
            spans.append(match.span(2))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return [span for span in merged if not _is_placeholder(text[span[0] : span[1] + 1])]


def _is_placeholder(text: str) -> bool:
    """At most one character may follow. A name in the shape of a key does not count."""
    return _own_placeholder.search(text) is not None and not find_secrets(text)


def _searchable(text: str) -> str:
    """RE2 accepts UTF-8 only. A lone surrogate becomes one `?`, so positions do not change."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _find_shapes(text: str) -> Iterator[tuple[int, int, str]]:
    if len(text) < _SHORTEST or not (any(map(text.__contains__, _MARKS)) or ("://" in text and "@" in text)):
        return
    covered = 0
    for count, match in enumerate(_shape.finditer(text)):
        if count == _MAX_FINDINGS:
            yield covered, len(text), "too many to list"
            return
        start, end = match.span()
        if start < covered:
            continue
        kind = next(kind for group, kind in enumerate(_KINDS, 1) if match.start(group) >= 0)
        if kind == "private key":
            end = _end_of_private_key(text, end)
        elif kind == "bearer token":
            start = end - len(match[0].split()[-1])
        elif kind == "password in a url":
            start, end = start + 3 + match[0][3:].index(":") + 1, end - 1
        covered = end
        yield start, end, kind


def _end_of_private_key(text: str, end: int) -> int:
    close = text.find("-----END", end, end + 20_000)
    if close < 0:
        return end
    closed = text.find("-----", close + 8, close + 80)
    return closed + 5 if closed >= 0 else close + 8


def _is_real(value: str, kind: str) -> bool:
    """Whether a value is not a placeholder, and not words that begin like a key (`sk-folding-cube-animation`)."""
    if _placeholder.search(value) or _reference.search(value):
        return False
    if kind == "password in a url":
        return value.lower() not in ("password", "pass", "passwd", "pwd", "secret", "token", "x-oauth-basic")
    return kind == "private key" or any(c.isdigit() for c in value)


def looks_random(value: str) -> bool:
    if len(value) < _SHORTEST or any(c.isspace() for c in value):
        return False
    if any(harmless.search(value) for harmless in (_reference, _placeholder, _digest, _words)):
        return False
    return entropy(value) >= (2.5 if len(value) < 16 else 3.0)


def entropy(value: str) -> float:
    return -sum(n / len(value) * log2(n / len(value)) for n in Counter(value).values())
