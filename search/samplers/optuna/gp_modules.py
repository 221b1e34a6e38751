"""The modules that Optuna's GPSampler imports when it first proposes."""

GP_MODULES = (
    "scipy.stats",
    "torch",
    "torch.utils._device",
    "optuna._gp.acqf",
    "optuna._gp.batched_lbfgsb",
    "optuna._gp.gp",
    "optuna._gp.optim_mixed",
    "optuna._gp.prior",
    "optuna._gp.search_space",
)
