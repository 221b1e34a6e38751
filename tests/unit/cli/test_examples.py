"""The examples' specs are valid, so that a copy of one works."""

from pathlib import Path

import pytest
import yaml

from service.cli.code_archive import folder_with_file, folder_with_module
from service.specification.parser import parse_spec

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/experiment.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_an_examples_spec_has_no_mistakes_and_its_code_beside_it(file: Path) -> None:
    spec = parse_spec(yaml.safe_load(file.read_text()))
    if spec.trainer.kind == "external":
        return
    if spec.trainer.command:
        assert folder_with_file(file, spec.trainer.command) == file.parent
    else:
        assert folder_with_module(file, spec.trainer.entrypoint or "") == file.parent
