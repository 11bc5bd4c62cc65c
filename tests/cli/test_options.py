"""A case recorded with `--param` values is found and replayed with the same values."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shop_project import Project

PARAMS = """\
params:
  order: {type: string, default: "1042"}
  share: {type: number, default: 0.5}
  list: {type: array, default: []}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    shop = Project(tmp_path)
    shop.edit("shop.yaml", 'params: {order: {type: string, default: "1042"}}\n', PARAMS)
    shop.edit("prompt.md", "Be brief.", "Be brief: {{ share }} {{ list | tojson }}.")
    return shop


@pytest.mark.parametrize(
    "given",
    [
        ("share=1e3",),
        ("share=2.0",),
        ("share=-0.0",),
        ("share=0.1",),
        ("list=[1.0, 2.5, null, true, {}]",),
        ("order=1.0",),
    ],
)
def test_case_recorded_with_params_is_replayed(shop: Project, given: tuple[str, ...]) -> None:
    params = [part for each in given for part in ("--param", each)]
    shop.record("--case", "mine", *params)
    for again in (params, ["--case", "mine"]):
        done = shop.run("--mode", "replay", *again)
        assert (done.code, done.out) == (0, "Done.\n"), done.err
