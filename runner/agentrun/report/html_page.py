"""One self-contained HTML file: the style and the script of `report/page/`, and the data of a view.

Rule 1  The file loads nothing. Its content security policy allows one script and one style, by hash.
Rule 2  The data is JSON in a script element that is not run. No character of it can end that element.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from agentrun.canonical_json import sorted_json

SCRIPTS = ("1_dom.js", "2_header.js", "3_timeline.js", "4_story.js", "5_pane.js", "9_main.js")
_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; style-src '{style_hash}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>agentrun</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript, which it brings along. It loads nothing.</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""  # noqa: E501  # one line, as browsers read it


def render_page(view: Any) -> str:
    """`view`: data for the page. It has no secrets any more."""
    style, script = _page_files()
    data = sorted_json(view).decode().translate(_ESCAPES)
    return _PAGE.format(
        script_hash=_csp_hash(script), style_hash=_csp_hash(style), style=style, script=script, data=data
    )


@cache
def _page_files() -> tuple[str, str]:
    folder = files("agentrun.report") / "page"
    scripts = "".join((folder / name).read_text("utf-8") for name in SCRIPTS)
    return (folder / "page.css").read_text("utf-8"), f'"use strict";\n(() => {{\n{scripts}}})();\n'


def _csp_hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
