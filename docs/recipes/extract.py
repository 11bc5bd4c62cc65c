"""Extract an invoice from each of many texts: at most eight at once, with a progress bar."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from pydantic import BaseModel

import agentrun

SPEC = Path(__file__).with_name("invoice.yaml")


class Invoice(BaseModel):
    customer: str
    total: float
    currency: str


async def extract(texts: Sequence[str], at_once: int = 8) -> list[Invoice | None]:
    """The invoice of each text, or None where the model found none."""
    limit = asyncio.Semaphore(at_once)
    with click.progressbar(length=len(texts), label="invoices", file=sys.stderr) as bar:

        async def extract_one(text: str) -> Invoice | None:
            async with limit:
                outcome = await agentrun.arun(SPEC, text, output=Invoice)
            bar.update(1)
            return outcome.output

        return await asyncio.gather(*map(extract_one, texts))


if __name__ == "__main__":
    for invoice in asyncio.run(extract(sys.stdin.read().split("\n\n"))):
        print("null" if invoice is None else invoice.model_dump_json())
