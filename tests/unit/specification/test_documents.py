"""Documents: YAML by the JSON schema of YAML 1.2, JSON, and bounds on the work for both."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from service.cli.submission import preview_document
from service.errors import BadRequest, Invalid, ServiceError, TooLarge
from service.specification.documents import read_document
from service.specification.parser import parse_spec
from tests.conftest import a_spec

SIZE = 2_000_000
SECONDS = 2.0
"""Far above what a document takes (half a second), because the machine may be busy. Quadratic work takes minutes."""


def read(text: str | bytes, *, is_json: bool = False) -> Any:
    return read_document(text.encode() if isinstance(text, str) else text, is_json=is_json)


def filled(part: str, size: int = SIZE) -> str:
    return part * (size // len(part))


# Made when they are used: they are a hundred megabytes, and each of pytest's workers imports this file.
HARD: dict[str, Callable[[], str | bytes]] = {
    "underscores": lambda: f"space: 1{filled('_')}e",
    "base 60": lambda: f"space: 1{filled(':59')}",
    "digits": lambda: f"a: {filled('1')}",
    "decimals": lambda: f"a: 1.{filled('1')}",
    "digits and a letter": lambda: f"a: {filled('1')}x",
    "exponent": lambda: f"a: 1e{filled('1')}",
    "dots": lambda: f"a: {filled('1.')}",
    "signs": lambda: f"a: {filled('-+')}",
    "a date": lambda: f"a: 2020-01-01{filled(' ')}x",
    "text": lambda: f"a: {filled('x')}",
    "quoted": lambda: f'a: "{filled(chr(92) + "n")}"',
    "literal": lambda: f"a: |\n{filled(' x' + chr(10))}",
    "folded": lambda: f"a: >\n{filled(' x' + chr(10) * 2)}",
    "lines of text": lambda: f"a: x\n{filled('  x' + chr(10))}",
    "spaces": lambda: f"a: x{filled(' ')}y",
    "comments": lambda: f"{filled('# x' + chr(10))}a: 1",
    "directives": lambda: "".join(f"%TAG !a{n}! tag:x\n" for n in range(SIZE // 20)) + "--- a\n",
    "directives after a mark": lambda: (
        "\ufeff# x\n" + "".join(f"%TAG !a{n}! tag:x\n" for n in range(SIZE // 20)) + "--- a\n"
    ),
    "directives of the second document": lambda: (
        "a: 1\n...\n" + "".join(f"%TAG !a{n}! tag:x\r" for n in range(SIZE // 20))
    ),
    "directives after other breaks": lambda: "\u2028".join(
        ["---", "...", *[f"%TAG !a{n}! tag:x" for n in range(SIZE // 22)], "--- a"]
    ),
    "directives in UTF-16": lambda: ("".join(f"%TAG !a{n}! tag:x\n" for n in range(SIZE // 40)) + "--- a").encode(
        "utf-16"
    ),
    "names": lambda: "".join(f"k{n}: 1\n" for n in range(SIZE // 10)),
    "a list": lambda: f"[{filled('1,')}1]",
    "a block": lambda: filled("- 1\n"),
    "pairs": lambda: f"[{filled('a: b,')}]",
    "empty objects": lambda: f"[{filled('{},')}]",
    "documents": lambda: filled("---\n"),
    "nested lists": lambda: filled("["),
    "nested objects": lambda: filled("{a: "),
    "nested blocks": lambda: filled("- "),
    "nested names": lambda: filled("? "),
    "one name again": lambda: filled("a: 1\n"),
    "anchors": lambda: "".join(f"k{n}: &a{n} x\n" for n in range(SIZE // 20)),
    "a long anchor": lambda: f"a: &{filled('x')} 1",
    "aliases": lambda: f"a: &a x\nb: [{filled('*a,')}]",
    "aliases of lists": lambda: f"a: &a [{'x,' * 50_000}]\nb: [{filled('*a,', 500_000)}]",
    "merges": lambda: f"a: &a {{b: 1}}\nb:\n{filled('  <<: *a' + chr(10))}",
    "tags": lambda: f"[{filled('!!str a,')}]",
    "unknown tags": lambda: f"[{filled('!x a,')}]",
    "a long tag": lambda: f"a: !{filled('x')} 1",
    "not closed": lambda: f'a: "{filled("x")}',
    "a long name": lambda: f"? {filled('k')}\n: !x 1",
    "marks": lambda: filled("\ufeff"),
    "JSON": lambda: f'{{"a": [{filled("1,")}1]}}',
    "JSON objects": lambda: f"[{filled('{},')}1]",
    "JSON digits": lambda: f'{{"a": {filled("1")}}}',
    "JSON decimals": lambda: f'{{"a": 1.{filled("1")}}}',
    "JSON exponent": lambda: f'{{"a": 1e{filled("1")}}}',
    "JSON nested": lambda: filled("["),
    "JSON name again": lambda: "{" + filled('"a":1,') + '"a":1}',
}


@pytest.mark.slow
@pytest.mark.parametrize("make", HARD.values(), ids=HARD.keys())
def test_two_megabytes_of_any_shape_are_read_or_refused_quickly(make: Callable[[], str | bytes]) -> None:
    text = make()
    started = time.thread_time()
    for is_json in (False, True):
        try:
            read(text, is_json=is_json)
        except ServiceError as error:
            assert len(error.detail) < 10_000  # noqa: PT017 - the answer does not repeat the document
    assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize(("text", "value"), [
    ("null", None), ("~", None), ("", None), ("true", True), ("false", False),
    ("0", 0), ("-7", -7), ("1.5", 1.5), ("1.", 1.0), ("1e-4", 1e-4), ("1E+3", 1000.0), ("-1.5e3", -1500.0),
    ("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("! 1", "1"), ("!!float 1", 1.0), ("!!int '1'", 1),
    ("!!bool true", True), ("!!null null", None), ("!!seq [1]", [1]), ("!!map {a: 1}", {"a": 1}),
])  # fmt: skip
def test_plain_scalars_are_those_of_json(text: str, value: Any) -> None:
    found = read(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [
    "yes", "no", "on", "off", "y", "True", "FALSE", "Null", "1_000", "0x1F", "0o17", "0777", "0b1", "+1", ".5", "1:59",
    "1:59:59.5", "2020-01-01", "2020-01-01T00:00:00Z", "1e", "1.2.3", "=", "-1-", "Infinity", "NaN", "٣",
])  # fmt: skip
def test_what_yaml_1_1_read_as_another_type_is_text(text: str) -> None:
    assert read(f"a: {text}") == {"a": text}


@pytest.mark.parametrize("text", [".inf", "-.inf", ".nan", ".NaN", ".Inf", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^a.0: must be a finite number"):
        read(f"a: [{text}]")


@pytest.mark.parametrize("text", [
    "!!bool x", "!!int ''", "!!int x", "!!int 1.5", "!!float x", "!!null x", "!!timestamp x", "!!timestamp 2020-01-01",
    "!!binary YQ==", "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!python/object:os.system x", "!x 1", "!!seq x",
    "!!map x", "!!str [x]", "!!str {x: 1}", "!<tag:example.org,2020:x> 1", "!!merge x", "!!value x", "!!yaml x",
])  # fmt: skip
def test_tags_that_json_does_not_have_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(Invalid, match=r"^b\.0: .*line 2") as raised:
        read(f"a: 1\nb: [{text}]")
    assert "!" in raised.value.detail


@pytest.mark.parametrize(("text", "where"), [
    ("a: 1\nb: {c: 1, c: 2}", "b.c"), ("a: 1\na: 2", "a"), ("1: a\n'1': b", "1"), ('{"a": {"b": 1, "b": 1}}', "a.b"),
    ("- a: 1\n  a: 2", "0.a"), ("true: 1\n'true': 2", "true"), ('{"a": 1, "\\u0061": 2}', "a"),
])  # fmt: skip
def test_a_name_that_is_written_twice_is_refused(text: str, where: str) -> None:
    with pytest.raises(Invalid, match=rf"^{where}: is written twice"):
        read(text)


@pytest.mark.parametrize("text", ["[" + "NaN, " * 130 + "NaN]", "[" + ".nan, " * 130 + ".nan]"])
def test_mistakes_beyond_the_first_hundred_are_counted(text: str) -> None:
    with pytest.raises(Invalid, match="and 31 more mistakes") as raised:
        read(text)
    assert len(raised.value.mistakes) == 100


def test_names_that_are_repeated_in_several_objects_are_all_named() -> None:
    with pytest.raises(Invalid) as raised:
        read('{"space": {"a": {"low": 0, "low": 1}, "b": [{"x": 1, "x": 2, "y": 1, "y": 1}]}}', is_json=True)
    assert [mistake.where for mistake in raised.value.mistakes] == ["space.a.low", "space.b.0.x", "space.b.0.y"]


@pytest.mark.slow
def test_yaml_with_too_many_values_is_too_large() -> None:
    with pytest.raises(TooLarge) as raised:
        read("a: [" + "x, " * 100_000 + "x]")
    assert raised.value.facts["max_parts"] == 100_000


@pytest.mark.parametrize("text", [
    "a: 1\n---\nb: 2", "<<: {a: 1}", "[a]: 1", "{a: 1}: 1", "a: &a x\n*a : 1", "a: *b", "a: &a [*a]", "a: &a {b: *a}",
    "a: &a 1\nb: &a [*a]", "%TAG ! x\n--- a", "a: [", "a: b: c", "\t- a", "a: '", "\x00", b"\xff\xfe\x00", b"a: \xff",
])  # fmt: skip
def test_what_is_not_one_document_of_plain_values_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadRequest) as raised:
        read(text)
    assert "\n" not in raised.value.detail


def test_a_syntax_error_has_its_line() -> None:
    with pytest.raises(BadRequest, match="line 2"):
        read("a: 1\nb: ]")


def test_names_are_text_as_it_is_written() -> None:
    assert read("1: a\ntrue: b\n1e3: c\n'': d") == {"1": "a", "true": "b", "1e3": "c", "": "d"}


def test_an_alias_stands_for_the_value_of_its_anchor() -> None:
    assert read("a: &a {x: [1]}\nb: [*a, *a]\nc: &a 2\nd: *a") == {
        "a": {"x": [1]},
        "b": [{"x": [1]}] * 2,
        "c": 2,
        "d": 2,
    }


@pytest.mark.parametrize(("written", "right"), [
    ("1_000", "1000"), ("0x1F", "31"), ("0o17", "15"), ("0777", "511"), ("+12", "12"), ("1:59", "119"), ("0b11", "3"),
    ("1_0.5", "10.5"), (".5", "0.5"), ("+.5e-3", "0.5e-3"), ("08", "8"),
])  # fmt: skip
@pytest.mark.parametrize("path", [("limits", "max_trials"), ("limits", "max_seconds"), ("space", "x", "high")])
def test_a_number_in_another_spelling_is_a_mistake_that_names_the_right_one(
    path: tuple[str, ...], written: str, right: str
) -> None:
    spec: dict[str, Any] = a_spec(limits={}, space={"x": {"type": "float", "low": 0, "high": 1}})
    part: Any = spec
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "HERE"
    with pytest.raises(Invalid) as raised:
        parse_spec(read(yaml.safe_dump(spec).replace("HERE", written)))
    detail = raised.value.detail
    assert detail.startswith(".".join(path))
    assert f"write {right}" in detail


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4)
    ),
)


@given(plain_values)
def test_json_is_read_as_python_reads_it(value: Any) -> None:
    assert read(json.dumps(value), is_json=True) == value


class Yaml12Dumper(yaml.SafeDumper):
    """Quotes texts that only YAML 1.2 reads as numbers, too: PyYAML, which writes YAML 1.1, leaves 0E0 as it is."""


Yaml12Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"), list("-0123456789")
)


@given(plain_values, st.booleans())
@example("0E0", False)
@example(["-1e3", {"1.e5": "00E1"}], True)
def test_what_a_yaml_library_writes_is_read_as_it_was(value: Any, flow: bool) -> None:
    written = yaml.dump(value, Dumper=Yaml12Dumper, default_flow_style=flow, allow_unicode=False)
    assert read("# YAML, not JSON\n" + written) == value


YAML_PARTS = st.sampled_from([
    "a", "b: ", "- ", "\n", "  ", "{", "}", "[", "]", ", ", ": ", "? ", "&a ", "*a", "!!int ", "!!bool ", "!x ", "! ",
    "<<: ",
    "|\n", ">-\n", "'", '"', "#", "---\n", "...\n", "%YAML 1.1\n", "%TAG ! x\n",
    "1", "_", "e", ".", "-", "~", "null",
    "\t", "\\", "\\ud800", "\r", "\x85", "\u2028", "\ufeff", "\0", "🙂",
    "1e999", ".inf", "9" * 30, "!<", ">", "%41", "@", "`",
])  # fmt: skip


@given(st.lists(YAML_PARTS, max_size=30).map("".join), st.booleans())
def test_yaml_of_any_text_is_read_or_refused(text: str, is_json: bool) -> None:
    assert_read_or_refused(text.encode(), is_json)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_refused(body: bytes, is_json: bool) -> None:
    assert_read_or_refused(body, is_json)


def assert_read_or_refused(body: bytes, is_json: bool) -> None:
    try:
        json.dumps(read_document(body, is_json=is_json), allow_nan=False).encode()
    except (BadRequest, Invalid) as error:
        error.detail.encode()
        json.dumps(error.body()).encode()


def test_the_command_line_reads_a_spec_as_the_service_does(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("config: {a: yes, b: 1e-4, c: 0777, d: 2020-01-01}")
    assert read(preview_document(file, 2)) == read(file.read_bytes()) | {"n": 2}
    file.write_text("a: 1\na: 2")
    assert preview_document(file, 2) == file.read_bytes()
