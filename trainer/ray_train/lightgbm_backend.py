"""Ray Train's LightGBM backend for warm workers.

Ray sets LightGBM's network parameters once in the life of a process, and refuses to set them again for the next run.
"""

from importlib import import_module
from typing import Any

CONFIG_MODULE = "ray.train.lightgbm.config"


class WarmLightGBMBackend:
    """Mixed into Ray's backend: each run starts as in a new process."""

    def on_training_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(forget_network_params)
        super().on_training_start(worker_group, backend_config)  # type: ignore[misc]


def forget_network_params() -> None:
    config_module: Any = import_module(CONFIG_MODULE)
    config_module._lightgbm_network_params = None  # noqa: SLF001


def lightgbm_config() -> Any:
    """Ray's `LightGBMConfig` with this backend. Raises ImportError where LightGBM is not installed."""
    config_module = import_module(CONFIG_MODULE)
    bases = (WarmLightGBMBackend, config_module._LightGBMBackend)  # noqa: SLF001
    backend = type("LightGBMBackend", bases, {})
    attributes = {"backend_cls": property(lambda _self: backend)}
    return type("LightGBMConfig", (config_module.LightGBMConfig,), attributes)()
