"""Names of Ray Train that a specification does not take, and what to write instead."""

from search.mistakes import UNKNOWN, Mistake

_NO_TPU = "is not supported: Paceline has not been run on TPUs"
_IN_REPORT = "is an argument of ray.train.report(): give it there"
_NO_CONFIG = "has no options here; leave it out"

_TRAINER = {
    "train_loop_per_worker": "is called entrypoint here: module:function",
    "train_loop_config": "is called config here, at the top of the specification",
    "scaling_config": "is called scaling here",
    "dataset_config": "is called data here",
    "worker_runtime_env": "is called runtime_env here",
    "run_config": "is not supported: the service sets it; see checkpoints, failures and runtime_env",
    "checkpoint_config": "is not supported: see checkpoints, at the top of the specification",
    "failure_config": "is not supported: see failures, at the top of the specification",
    "storage_path": "is not supported: PACELINE_STORAGE of the service says where checkpoints go",
    "storage_filesystem": "is not supported: PACELINE_STORAGE of the service says where checkpoints go",
    "callbacks": "are not supported: Ray would run them in its controller; call what you need in the training function",
    "logging_config": "is not supported: GET /v1/trials/{trial}/logs has what the workers write",
    "resume_from_checkpoint": "is not supported: a trial resumes by itself; a path to start from can be part of config",
    "validation_config": "is called validation here: {entrypoint, fn_kwargs, timeout_s, ray_remote_kwargs}",
    "framework_config": "is called torch_config here; the configurations of the other kinds have no options here",
    "backend_config": "is called torch_config here; the configurations of the other kinds have no options here",
    "checkpoint_upload_mode": _IN_REPORT,
    "checkpoint_upload_fn": _IN_REPORT,
    "topology": _NO_TPU,
    "xgboost_config": _NO_CONFIG,
    "lightgbm_config": _NO_CONFIG,
    "tensorflow_config": _NO_CONFIG,
    "jax_config": _NO_CONFIG,
}
_SCALING = {
    "bundle_label_selector": "is called label_selector here, as in Ray's ScalingConfig: one for all workers, or a list",
    "trainer_resources": "is not supported: the controller of a trial reserves nothing",
    "use_tpu": _NO_TPU,
    "topology": _NO_TPU,
}
_TORCH = {"init_method": "is not supported: the workers find each other by environment variables (env://)"}

REASONS: dict[tuple[str | int, ...], str] = {
    **{("trainer", name): reason for name, reason in _TRAINER.items()},
    **{("trainer", "scaling", name): reason for name, reason in _SCALING.items()},
    **{("trainer", "torch_config", name): reason for name, reason in _TORCH.items()},
}
"""By the field's path. None of these is a field of the specification."""


def with_ray_trains_name(mistake: Mistake) -> Mistake:
    """For an unknown field with a name of Ray Train, what to write instead; any other mistake unchanged."""
    reason = REASONS.get(mistake.path) if mistake.message == UNKNOWN else None
    return Mistake(mistake.path, reason) if reason is not None else mistake
