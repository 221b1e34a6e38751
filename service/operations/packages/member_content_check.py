"""Unpacks a member of a zip in pieces, to see that it is what the directory says. Nothing is kept."""

import zlib

from service.operations.packages.zip_directory import ZipMember

_INPUT_BYTES = 64_000
_PIECE_BYTES = 256_000

DAMAGED = "is damaged; create the zip again"


def fault_in_content(body: bytes, member: ZipMember) -> str | None:
    """A wrong size or checksum, or packed bytes that deflate cannot read; stops at the size that the directory says."""
    packed = memoryview(body)[member.start : member.end]
    if not member.deflated:
        return None if (len(packed), zlib.crc32(packed)) == (member.size, member.crc) else DAMAGED
    try:
        return _fault_in_deflated(packed, member)
    except zlib.error:
        return DAMAGED


def _fault_in_deflated(packed: memoryview, member: ZipMember) -> str | None:
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    size, crc, used = 0, 0, 0
    piece, pending = b"", b""
    while not decompressor.eof:
        if not pending and len(piece) < _PIECE_BYTES:
            pending = bytes(packed[used : used + _INPUT_BYTES])
            used += len(pending)
            if not pending:
                return DAMAGED  # the packed bytes end before the content
        piece = decompressor.decompress(pending, _PIECE_BYTES)
        pending = decompressor.unconsumed_tail
        size, crc = size + len(piece), zlib.crc32(piece, crc)
        if size > member.size:
            return f"has more than the {member.size} bytes that the zip says; create the zip again"
    if size < member.size:
        return f"has less than the {member.size} bytes that the zip says; create the zip again"
    ends_early = bool(decompressor.unused_data) or used < len(packed)
    return DAMAGED if ends_early or crc != member.crc else None
