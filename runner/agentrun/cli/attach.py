"""`--attach FILE`: a picture or a file that goes with the message."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentrun.canonical_json import data_hash

if TYPE_CHECKING:
    from agentrun.engine.request import Attachment

LARGEST = 20 * 1024 * 1024

attach_option = click.option(
    "--attach",
    "attached",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Send a picture or a file with the message; may be given several times.",
)


def attachments_of(paths: tuple[Path, ...]) -> tuple[Attachment, ...]:
    return tuple(map(_attachment, paths))


def _attachment(path: Path) -> Attachment:
    from agentrun.core.messages import File, Image
    from agentrun.engine.request import Attachment

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise click.UsageError(f"{path} has more than {LARGEST // 1024 // 1024} MiB")
    kind = guess_type(path.name)[0] or "application/octet-stream"
    name = path.name.encode(errors="replace").decode()  # what is no UTF-8 cannot be sent
    part: Image | File = File(name, kind, data_hash(data), len(data))
    if kind.startswith("image/"):
        part = Image(kind, data_hash(data), len(data))
    return Attachment(part, data)
