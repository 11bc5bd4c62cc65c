"""Token estimates are not below the counts of two public vocabularies, and not far above.

The counts are those of two public vocabularies (cl100k and o200k, the larger of both), taken once and written down:
the estimate itself needs no vocabulary.
"""

import base64
import hashlib
import json

import pytest

from agentrun.core.budget import TOKENS_PER_MESSAGE, estimate_tokens
from agentrun.core.messages import user_message

HASHES = [hashlib.sha256(str(number).encode()) for number in range(20)]

TEXTS = {
    "english": (
        "Where is my order? It was promised for Tuesday, and nobody has answered my last three letters. " * 5,
        101,
    ),
    "code": (
        "def fold(records: Iterable[Record]) -> State:\n    return reduce(evolve, records, State())\n" * 5,
        105,
    ),
    "json": (
        json.dumps([{"id": n, "name": f"item {n}", "price": n * 1.37, "tags": ["a", "b"]} for n in range(20)]),
        666,
    ),
    "hex": ("".join(each.hexdigest() for each in HASHES), 726),
    "base64": (base64.b64encode(b"".join(each.digest() for each in HASHES)).decode(), 620),
    "digits": ("".join(str(number * number) for number in range(200)), 285),
    "japanese": ("漢字仮名交じり文の日本語をここに書く。" * 10, 230),
    "russian": ("Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5, 181),
    "emoji": ("😀🎉🚀🤖" * 20, 220),
    "signs": ("".join("{}[]():;,.<>!?/|'"[number * number % 17] for number in range(300)), 176),
    "table": ("| key | value |\n|---|---|\n| a | 1.5 |\n| b | -2.25 |\n" * 8, 208),
    "url": ("https://shop.example/orders/1042?region=eu&page=3#items\n" * 8, 144),
    "upper": ("ORDER NOT FOUND: PLEASE CONTACT SUPPORT IMMEDIATELY. " * 6, 79),
}


@pytest.mark.parametrize("name", TEXTS)
def test_estimate_is_at_least_the_real_token_count(name: str) -> None:
    text, tokens = TEXTS[name]
    estimate = estimate_tokens(user_message(text)) - TOKENS_PER_MESSAGE
    assert tokens * 0.97 <= estimate <= 5 * tokens


def test_estimate_of_common_texts_is_close() -> None:
    """What most conversations are made of."""
    for name in ("english", "code", "json"):
        text, tokens = TEXTS[name]
        assert estimate_tokens(user_message(text)) <= 2.2 * tokens, name
