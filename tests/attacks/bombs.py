"""Compressed bodies that are small until they are decompressed."""

import struct
import zlib
from functools import cache

BLOCKS = 200
BLOCK = 1024 * 1024


@cache
def bomb(data: bytes, *, form: str = "gzip") -> bytes:
    """Some bytes repeated up to 200 MiB, compressed. Blocks of a compressed body can be repeated as they are."""
    block = data * (BLOCK // len(data))
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    blocks = (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)) * BLOCKS + packer.flush()
    assert len(blocks) < 1024 * 1024
    if form == "deflate":
        return b"\x78\x9c" + blocks  # nobody reads up to its checksum
    checksum = 0
    for _ in range(BLOCKS):
        checksum = zlib.crc32(block, checksum)
    return b"\x1f\x8b\x08" + bytes(7) + blocks + struct.pack("<II", checksum, len(block) * BLOCKS)
