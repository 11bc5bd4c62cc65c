"""Both OpenAI codecs, each with a request."""

from agentrun.providers.codec import Codec, codec_for

from . import exchange
from .exchange import NOW, SEARCH

NAMES = ("openai", "openai-responses")
CODECS: dict[str, Codec] = {name: codec_for(name) for name in NAMES}
REQUESTS = {name: exchange.request(name, "gpt-5.4-mini", tools=(SEARCH, NOW)) for name in NAMES}
