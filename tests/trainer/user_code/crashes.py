"""A training function whose process ends by a signal: by its own code, or from outside."""

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import ray.train


def train_fn(config: dict[str, Any]) -> None:
    behaviour = globals()[config["do"]]
    behaviour(config)


def read_nothing() -> None:
    ctypes.string_at(0)


def crash(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        read_nothing()
    time.sleep(600)


def abort(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        ctypes.CDLL(None).abort()
    time.sleep(600)


def be_killed(config: dict[str, Any]) -> None:
    """The signal reaches the main thread, as one from another process does; this function has a thread of its own."""
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() == 1:
        child = os.fork()
        if child == 0:
            read_nothing()
        os.waitpid(child, 0)
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(600)


def die_beside_forked_processes(config: dict[str, Any]) -> None:
    pool = ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
    assert sum(pool.map(abs, range(5))) == 10
    ray.train.report({"epoch": 1})
    if ray.train.get_context().get_world_rank() > 0:
        os.kill(os.getpid(), signal.SIGKILL) if config["by"] == "kill" else os._exit(4)
    ray.train.report({"epoch": 2})


def crash_elsewhere(config: dict[str, Any]) -> None:
    faulthandler.enable(Path(config["record"]).open("a"))  # noqa: SIM115 - it has to stay open
    crash(config)


def send_crashes_elsewhere(config: dict[str, Any]) -> None:
    faulthandler.enable(Path(config["record"]).open("a"))  # noqa: SIM115 - it has to stay open
    ray.train.report({"epoch": 1})


class AsksItsData(Exception):
    def __getattr__(self, name: str) -> Any:
        return self.__dict__["data"][name]


def raise_oddly(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    raise AsksItsData("careless")


def shut_ray_down(config: dict[str, Any]) -> None:
    ray.train.report({"epoch": 1})
    ray.shutdown()
