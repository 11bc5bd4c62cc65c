"""A small library as an MCP server: three documents, a search over them, and a notebook.

It speaks MCP over standard input and output, like any server that a spec names under `command:`.
"""

import json
import logging
import re
from pathlib import Path

from mcp.server import MCPServer

DOCUMENTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.md"))}
NOTEBOOK = Path(".agentrun", "notebook.jsonl")

library = MCPServer("library")


@library.tool(structured_output=False)
def search(words: str) -> str:
    """Lists the documents that contain all of these words, each with its title."""
    wanted = re.findall(r"\w+", words.lower())
    found = [name for name, text in DOCUMENTS.items() if all(word in text.lower() for word in wanted)]
    return "\n".join(f"{name}: {DOCUMENTS[name].splitlines()[0].lstrip('# ')}" for name in found) or "nothing found"


@library.tool(structured_output=False)
def read(document: str) -> str:
    """The whole text of a document."""
    if document not in DOCUMENTS:
        raise ValueError(f"there is no document {document!r}; there are {', '.join(DOCUMENTS)}")
    return DOCUMENTS[document]


@library.tool(structured_output=False)
def add_note(text: str) -> str:
    """Writes a note into the library's notebook, where the next reader finds it."""
    NOTEBOOK.parent.mkdir(exist_ok=True)
    with NOTEBOOK.open("a", encoding="utf-8") as notebook:
        notebook.write(json.dumps({"note": text}) + "\n")
    return "noted"


if __name__ == "__main__":
    logging.disable()
    library.run()
