"""Secrets are masked in what a worker prints, in whatever pieces and forms it is printed."""

import base64
import html
import json
import re
import textwrap
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.slot.nodes.node_tasks import read_rest
from trainer.worker.logs.log_follower import OutputFile
from trainer.worker.logs.masker import Masker

SECRET = 's3cr3t/+token=with odd&chars"é'  # noqa: S105
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"


def masked(text: str, *secrets: str) -> str:
    return Masker(secrets or (SECRET,)).mask(text)


def followed(path: Path, pieces: list[bytes], *secrets: str) -> str:
    """The log of a worker that prints these pieces, each read before the next one is printed."""
    path.write_bytes(b"")
    stream = OutputFile(str(path), Masker(secrets))
    read = []
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        read.append(stream.read())
    read += [stream.read(), stream.read(last=True)]
    stream.close()
    return "".join(read)


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        repr(SECRET)[1:-1],
        ascii(SECRET)[1:-1],
        repr(SECRET.encode())[2:-1],
        re.sub("%..", lambda found: found[0].lower(), quote(SECRET, safe="")),
        re.sub("%..", lambda found: found[0].lower(), quote_plus(SECRET)),
        html.escape(SECRET),
        html.escape(SECRET, quote=False),
        json.dumps(SECRET)[1:-1].replace("/", r"\/"),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        re.sub("(.{7})", r"\1\n", SECRET),
        SECRET.replace("/", "/\r\n"),
    ],
)
def test_every_form_of_a_secret_is_masked(form: str) -> None:
    assert masked(f"before {form} after") == "before *** after"


@pytest.mark.parametrize("before", ["", "u", "us", "user", "user:"])
def test_nothing_of_a_secret_can_be_decoded_from_base64(before: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(f"{before}{SECRET}:rest".encode()).decode()
        shown = masked(encoded)
        assert len(shown) < len(encoded) - len(SECRET)
        assert re.fullmatch(r"[\w=+/-]*\*\*\*[\w=+/-]*", shown)


def test_a_secret_with_several_lines_is_masked_by_line_too() -> None:
    assert masked(f"key: {KEY}.", KEY) == "key: ***."
    indented = textwrap.indent(KEY, "  > ")
    assert "MII" not in masked(indented, KEY)
    assert "hki" not in masked(indented, KEY)


def test_other_text_is_left_as_it_is() -> None:
    text = "epoch 1\nloss 0.5\r\nsecret token\n"
    assert masked(text) == text
    assert masked("a short one: abc", "abc") == "a short one: abc"
    assert Masker(()).mask(text) == text
    assert not Masker(())


def test_metrics_and_failures_are_masked_in_depth() -> None:
    found = Masker([SECRET]).mask_json({"a": [SECRET, 1, None, {SECRET: f"x{SECRET}"}], "b": 0.5})
    assert found == {"a": ["***", 1, None, {"***": "x***"}], "b": 0.5}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_secret_that_is_printed_in_pieces_is_masked(tmp_path: Path, size: int) -> None:
    text = f"before {SECRET} between {SECRET}{SECRET} s3cr after\n".encode()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert followed(tmp_path / "out", pieces, SECRET) == "before *** between ****** s3cr after\n"


@given(st.data())
def test_no_cut_shows_a_secret(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    secrets = ["abab", "ababcdab", "cdcdcd"]
    text = "".join(data.draw(st.lists(st.sampled_from([*secrets, "a", "b", "cd", "x", "\n"]), max_size=12)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end].encode() for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    log = followed(tmp_path_factory.getbasetemp() / "masking", pieces, *secrets)
    assert not [secret for secret in secrets if secret in log.replace("\n", "")]
    assert re.sub(r"\*+", "*", log) == re.sub(r"\*+", "*", Masker(secrets).mask(text))


def test_the_rest_of_a_dead_worker_begins_before_a_begun_secret(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    stream = OutputFile(str(path), Masker([SECRET]))
    with path.open("ab") as file:
        file.write(b"h\xc3\xa9llo " + SECRET.encode()[:9])
    assert stream.read() == "héllo "
    with path.open("ab") as file:
        file.write(SECRET.encode()[9:] + b"\n")
    assert masked(read_rest({str(path): stream.position})) == "***\n"
    stream.close()
