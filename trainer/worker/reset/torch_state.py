"""What torch keeps of a trial beside its settings: random numbers, compiled functions, and memory of GPUs."""

import sys
import warnings
from typing import Any

LEFT_MEGABYTES = 256
"""How much GPU memory may stay allocated. cuBLAS keeps a workspace of some tens of MB for each stream."""


def reset_torch(unloaded: set[str]) -> None:
    """`unloaded` are the names of the package's modules."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    _seed(torch)
    _forget_safe_globals(torch.serialization, unloaded)
    _remove_hooks(torch.nn.modules.module, unloaded)
    if _has_compiled():
        # It compiles a function of a library at most eight times in a process, and then runs it uncompiled.
        torch.compiler.reset()


def _forget_safe_globals(serialization: Any, unloaded: set[str]) -> None:
    """Classes of the package that `torch.load` may load: it would make objects of the class before its last import."""
    known = serialization.get_safe_globals()
    kept = [one for one in known if getattr(one, "__module__", None) not in unloaded]
    if len(kept) < len(known):
        serialization.clear_safe_globals()
        serialization.add_safe_globals(kept)


def _remove_hooks(module: Any, unloaded: set[str]) -> None:
    """Remove the hooks that the package has registered for all modules: the next trial registers its own.

    Torch keeps them in a dict for each kind, and tells only their own handles how to remove them.
    """
    kinds = [one for name, one in vars(module).items() if name.startswith("_global_") and isinstance(one, dict)]
    removed = [key for hooks in kinds for key, hook in hooks.items() if _module_of(hook) in unloaded]
    for hooks in kinds:
        for key in removed:
            hooks.pop(key, None)  # a hook may also be noted as always called


def _module_of(hook: Any) -> Any:
    return getattr(getattr(hook, "func", hook), "__module__", None)


def _has_compiled() -> bool:
    """Where torch finds a GPU, the first reset of its compiler imports all of it, which takes seconds."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def free_gpu_memory() -> str | None:
    """Free what is not in use any more. Returns why the process cannot be used again, or None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        return _free(torch.cuda)
    except RuntimeError as error:  # after an illegal access, for example, every call fails
        first_line = next(iter(str(error).splitlines()), "")
        return f"the training function left its GPU with an error: {first_line}"


def _free(cuda: Any) -> str | None:
    # Any other device call would begin to use a GPU that this process only sees.
    used = [device for device in range(cuda.device_count()) if cuda.memory_reserved(device)]
    for device in used:
        cuda.synchronize(device)
    with warnings.catch_warnings(action="ignore"):
        cuda.empty_cache()
    for device in used:
        cuda.reset_peak_memory_stats(device)  # a trial may report its peak
        cuda.reset_accumulated_memory_stats(device)
        if cuda.get_per_process_memory_fraction(device) != 1:
            cuda.set_per_process_memory_fraction(1.0, device)
    left = sum(map(cuda.memory_allocated, used)) / 1e6
    return f"the training function left {left:.0f} MB of GPU memory allocated" if left > LEFT_MEGABYTES else None


def _seed(torch: Any) -> None:
    """At random, as in a new process. `torch.seed` would prepare an accelerator, which takes time also without one."""
    torch.default_generator.seed()
    for accelerator in (torch.cuda, torch.xpu):
        if accelerator.is_available():
            accelerator.seed_all()
    if torch.backends.mps.is_available():
        torch.mps.seed()
