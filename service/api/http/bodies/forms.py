"""A form with `spec` and `code`, read while it arrives, so that what is too large is refused before it is all here."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from search.mistakes import Mistake, shortened
from service.errors import BadRequest, Invalid, TooLarge

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_SPEC_BYTES = 5_000_000
MAX_FORM_PARTS = 1000
MAX_MISTAKES = 20
_PARTS = ("spec", "code")


@dataclass
class FormPart:
    """`filename` is None for a text field."""

    name: str
    filename: str | None
    content: bytearray = field(default_factory=bytearray)

    @property
    def basename(self) -> str:
        """The name without its folders, which some clients send; empty if there is none."""
        name = PurePosixPath((self.filename or "").replace("\\", "/")).name
        return "" if name == ".." else name


async def read_form(content_type: str, chunks: AsyncIterator[bytes]) -> tuple[bytes, tuple[tuple[str, bytes], ...]]:
    """The spec, and the name and content of each file of code.

    Raises BadRequest for what is no form, TooLarge, and Invalid with every part that is wrong.
    """
    reader = _FormReader()
    try:
        _, options = parse_options_header(content_type)
        parser = MultipartParser(options.get(b"boundary", b""), reader.callbacks)
        async for chunk in chunks:
            parser.write(chunk)
    except (FormParserError, ValueError) as error:
        raise BadRequest(f"the multipart body cannot be read: {shortened(str(error))}") from error
    if not reader.is_complete:
        raise BadRequest("the multipart body cannot be read: it does not end with its boundary")
    if mistakes := list(_mistakes_in(reader.parts))[:MAX_MISTAKES]:
        raise Invalid(mistakes)
    spec = next(part for part in reader.parts if part.name == "spec")
    code = tuple((part.basename, bytes(part.content)) for part in reader.parts if part.name == "code")
    return bytes(spec.content), code


def spec_too_large() -> TooLarge:
    return TooLarge(f"a spec may have at most {MAX_SPEC_BYTES / 1e6:g} MB", max_bytes=MAX_SPEC_BYTES)


class _FormReader:
    """Collects the parts that the parser finds. The content of a part that will be refused is dropped."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self.is_complete = False
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""

    @property
    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header_name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header_value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._add_part,
            "on_part_data": self._add_content,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._disposition = b""

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _add_part(self) -> None:
        if len(self.parts) == MAX_FORM_PARTS:
            message = f"a form may have at most {MAX_FORM_PARTS} parts; send the code as a zip"
            raise TooLarge(message, max_parts=MAX_FORM_PARTS)
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise BadRequest("the multipart body cannot be read: a part has no name in its Content-Disposition")
        filename = options.get(b"filename")
        self.parts.append(
            FormPart(
                options[b"name"].decode("utf-8", "replace"),
                None if filename is None else filename.decode("utf-8", "replace"),
            )
        )

    def _add_content(self, data: bytes, start: int, end: int) -> None:
        part = self.parts[-1]
        if part.name == "spec" and len(part.content) + end - start > MAX_SPEC_BYTES:
            raise spec_too_large()
        if part.name == "spec" or (part.name == "code" and part.filename is not None):
            part.content += data[start:end]

    def _end(self) -> None:
        self.is_complete = True


def _mistakes_in(parts: list[FormPart]) -> Iterator[Mistake]:
    specs = sum(part.name == "spec" for part in parts)
    if specs != 1:
        example = "curl -F spec=@experiment.yaml -F code=@train.py"
        yield Mistake(("spec",), "is sent twice; send one" if specs else f"is required: {example}")
    first: dict[str, str] = {}
    for part in parts:
        if part.name not in _PARTS:
            yield Mistake((shortened(part.name) or "a part",), "is not known; known here: spec, code")
        elif part.name == "code":
            if fault := _fault_in_code(part, first):
                yield Mistake(("code",), fault)
            first.setdefault(part.basename.casefold(), part.filename or "")


def _fault_in_code(part: FormPart, first: dict[str, str]) -> str | None:
    if part.filename is None:
        return "must be a file, not text: with curl, -F code=@train.py, with @"
    if not part.basename:
        return "has no file name; send it as train.py, for example"
    other = first.get(part.basename.casefold())
    if other is not None:
        names = f"{shortened(other)!r} and {shortened(part.filename)!r}"
        return f"{names} have the same name without their folders; send files in folders as a zip"
    return None
