"""The documents' links lead to something, and so do the paths that they name."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DECISIONS = sorted(path for path in ROOT.glob("docs/decisions/*.md") if path.name != "README.md")

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
PATH = re.compile(r"`((?:service|search|trainer|tests|migrations|examples|docs)/[\w./-]+)`")
LAYER_PATH = re.compile(r"`((?:api|operations|store)/[\w./-]+)`")  # within the service


def _prose(document: Path) -> str:
    return FENCE.sub("", document.read_text())


def _anchors(document: Path) -> Iterator[str]:
    """GitHub's anchors: lower case, without punctuation, spaces as dashes; a repeated heading gets a number."""
    seen: dict[str, int] = {}
    for heading in HEADING.findall(_prose(document)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def _broken_links(document: Path) -> Iterator[str]:
    for link in LINK.findall(CODE.sub("", _prose(document))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
            yield f"{link}: there is no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(document: Path) -> None:
    assert not list(_broken_links(document))


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    sample = tmp_path / "sample.md"
    sample.write_text("# A title\n[gone](gone.md) [nothing](#b-title) [fine](#a-title) `[code](gone.md)`\n")
    assert list(_broken_links(sample)) == ["gone.md: there is no such file", "#b-title: there is no such heading"]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md"])
def test_documents_for_developers_name_paths_that_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    paths = [*PATH.findall(text), *(f"service/{path}" for path in LAYER_PATH.findall(text))]
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not [path for path in missing if not re.search("NAME|NOUN|RESOURCE", path)]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_names_files_that_obey_it(page: Path) -> None:
    _, _, obeying = page.read_text().partition("## Files that obey it")
    paths = re.findall(r"`([\w./-]+)`", obeying)
    assert paths, "the section `Files that obey it` names no path"
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_there_are_decisions() -> None:
    assert DECISIONS
