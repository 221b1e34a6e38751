"""The Parzen estimator of sorted values has the same kernels as Optuna's, which sorts them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator, _ParzenEstimatorParameters
from optuna.samplers._tpe.sampler import default_weights

from search.samplers.optuna.tpe.estimator import SortedParzenEstimator


@given(
    values=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=40),
    log=st.booleans(),
    endpoints=st.booleans(),
    magic_clip=st.booleans(),
)
def test_the_kernels_have_the_same_means_and_widths(
    values: list[float], *, log: bool, endpoints: bool, magic_clip: bool
) -> None:
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(1e-3, 1.0, log=log)}
    parameters = _ParzenEstimatorParameters(1.0, magic_clip, endpoints, default_weights, multivariate=True)
    seen = {"x": np.array(values)}
    [ours] = SortedParzenEstimator(
        seen, space, parameters, orders={"x": np.argsort(seen["x"])}
    )._mixture_distribution.distributions
    [theirs] = _ParzenEstimator(seen, space, parameters)._mixture_distribution.distributions
    assert type(ours) is type(theirs)
    for name in ("mu", "sigma"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
