"""The wheel contains the package and the schemas where the code looks for them."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from .sources import PACKAGE, ROOT


def files(folder: Path) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if "__pycache__" not in name}


def test_wheel_contains_the_package_and_the_schemas(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    assert Path(wheel).name.startswith("agentrun_harness-")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    code = {f"agentrun/{name}" for name in files(PACKAGE)}
    schemas = {f"agentrun/schemas/{name}" for name in files(ROOT / "schemas")}
    assert schemas, "no schemas to ship"
    assert {name for name in inside if ".dist-info/" not in name} == code | schemas
