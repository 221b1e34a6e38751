"""The options of `paceline up`."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from service.stack.ports import becomes_free, free_port, taken

HOST = "127.0.0.1"
MIN_CPUS = 8


class CannotStart(Exception):
    """Why the stack cannot start and what to do, as a message for the terminal."""


@dataclass(frozen=True)
class Options:
    """A port of 0 picks a free one. `cpus` are Ray's logical CPUs: how many workers fit, not how fast they are.

    `token` is the access token with which the stack asks its service for its agent.
    """

    data_dir: Path
    port: int = 8000
    mlflow_port: int = 5000
    mlflow: bool = True
    cpus: int | None = None
    token: str | None = field(default=None, repr=False)

    def resolved(self) -> Self:
        """Return the options with free ports, CPUs and an absolute path. Raises CannotStart when a port is taken."""
        if self.mlflow and self.port and self.port == self.mlflow_port:
            raise CannotStart(
                f"the service and MLflow cannot both have port {self.port}. Choose another `--port` or `--mlflow-port` "
                "(0 picks a free one)"
            )
        return replace(
            self,
            data_dir=self.data_dir.absolute(),
            port=_checked_port(self.port, "port"),
            mlflow_port=_checked_port(self.mlflow_port, "mlflow-port") if self.mlflow else self.mlflow_port,
            cpus=self.cpus or max(MIN_CPUS, os.cpu_count() or 1),
        )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def mlflow_url(self) -> str | None:
        return f"http://{HOST}:{self.mlflow_port}" if self.mlflow else None


def _checked_port(port: int, option: str) -> int:
    if port and not becomes_free(HOST, port):
        variable = f"PACELINE_{option.replace('-', '_').upper()}"
        raise CannotStart(f"{taken(HOST, port, option, variable)} (0 picks a free one)")
    return port or free_port(HOST)
