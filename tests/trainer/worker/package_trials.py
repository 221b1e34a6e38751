"""Trials of one package in this process, one after the other."""

import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from trainer.worker.reset.baseline import Baseline
from trainer.worker.user_code.user_code import call, find_function


@dataclass
class Trials:
    """Trials in this process, each in a thread of its own with a working directory of its own, as in a worker."""

    package: Path
    root: Path
    monkeypatch: pytest.MonkeyPatch

    def write(self, **modules: str) -> None:
        for name, text in modules.items():
            (self.package / f"{name}.py").write_text(dedent(text))

    def run(self) -> tuple[Any, str | None]:
        """Returns what the function returned, and why the process cannot be used again."""
        directory = Path(tempfile.mkdtemp(dir=self.root))
        for file in self.package.glob("*.py"):
            (directory / file.name).write_text(file.read_text())
        self.monkeypatch.chdir(directory)
        results: list[tuple[Any, str | None]] = []
        thread = threading.Thread(target=lambda: results.append(self._run(directory)))
        thread.start()
        thread.join()
        self.monkeypatch.chdir(self.root)
        shutil.rmtree(directory)
        return results[0]

    def _run(self, directory: Path) -> tuple[Any, str | None]:
        baseline = Baseline()
        result = call(find_function("trained:train_fn", self.package), {})
        return result, baseline.restore([self.package, directory])
