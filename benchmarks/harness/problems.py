"""Problems for simulated searches: functions with a known minimum, tables of small models, and learning curves.

All are minimized. MF-Hartmann (Kandasamy et al., 2017) is the Hartmann function with noise, and with a bias that goes
away during training. In `crossing` fast learners end badly; in `misleading` the first steps have another optimum than
the end. A table holds the results of real trainings on scikit-learn's bundled data, computed once; a point between its
grid points has the values of the nearest one.
"""

import math
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

Point = dict[str, Any]
Curve = list[float]

STEPS = 27
"""The steps of the problems with curves; ASHA then has rungs at 1, 3 and 9."""
LONG, SHORT = 50, 20


@dataclass(frozen=True)
class Task:
    """`space` is a spec's space. `curve` returns the value at each step, `seconds` the duration of a step.

    `noiseless` is the curve without noise, where the noise of the last value is not 0. Its last value scores a winner.
    """

    space: dict[str, dict[str, Any]]
    curve: Callable[[Point], Curve]
    least: float = 0.0
    seconds: Callable[[Point], float] = lambda _point: 1.0
    steps: int = 1
    noiseless: Callable[[Point], Curve] | None = None

    def expected(self, point: Point, value: float) -> float:
        """The value to expect when a training that has ended with `value` is repeated."""
        return value if self.noiseless is None else self.noiseless(point)[-1]


def floats(names: int, low: float, high: float, *, log: bool = False) -> dict[str, dict[str, Any]]:
    return {f"x{index}": {"type": "float", "low": low, "high": high, "log": log} for index in range(names)}


def branin(point: Point) -> Curve:
    x, y = 15 * point["x0"] - 5, 15 * point["x1"]
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return [bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10]


_HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_WIDTHS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(point: Point) -> Curve:
    x = np.array([point[f"x{index}"] for index in range(6)])
    return [float(-_HEIGHTS @ np.exp(-(_WIDTHS * (x - _CENTRES) ** 2).sum(axis=1)))]


def rosenbrock(point: Point) -> Curve:
    x = [point[f"x{index}"] for index in range(10)]
    return [sum(100 * (after - one**2) ** 2 + (1 - one) ** 2 for one, after in pairwise(x))]


def simulated_curve(point: Point, deviation: float = 0.01) -> Curve:
    """A noisy exponential decay. A higher rate decays faster, to a worse value."""
    rate, width, drop = math.log10(point["rate"]), point["width"], point["drop"]
    end = 0.05 + 0.08 * (rate + 2.2) ** 2 + 0.3 * (drop - 0.2) ** 2 + 2 / width
    speed = 0.08 * 10 ** (0.5 * (rate + 3)) / (1 + drop)
    noise = _chance(point).normal(0, deviation, STEPS)
    return [end + (0.9 - end) * math.exp(-speed * (step + 1)) + noise[step] for step in range(STEPS)]


def mf_hartmann(noise: float, bias: float, point: Point) -> Curve:
    x = np.array([point[f"x{index}"] for index in range(6)])
    terms = np.exp(-(_WIDTHS * (x - _CENTRES) ** 2).sum(axis=1))
    errors = _chance(point).normal(0, noise, STEPS)
    errors[-1] = 0  # as its minimum is known
    shift = bias * np.array([1, -1, 1, -1])
    parts = [1 - (step + 1) / STEPS for step in range(STEPS)]
    return [float(-(_HEIGHTS - part * shift) @ terms + error) for part, error in zip(parts, errors, strict=True)]


def crossing(point: Point, deviation: float = 0.005) -> Curve:
    rate, depth, decay = point["rate"], point["depth"], point["decay"]
    end = 0.1 + 0.5 * (rate - 0.3) ** 2 + 0.3 * (depth - 0.6) ** 2 + 0.2 * (decay - 0.4) ** 2
    speed = 0.06 + 0.5 * rate + 0.2 * (1 - depth)
    noise = _chance(point).normal(0, deviation, STEPS)
    return [end + (0.9 - end) * math.exp(-speed * (step + 1)) + noise[step] for step in range(STEPS)]


def misleading(point: Point) -> Curve:
    end, early = (
        0.05 + sum((point[f"x{index}"] - centre) ** 2 for index, centre in enumerate(centres))
        for centres in ((0.7, 0.3, 0.5, 0.8), (0.3, 0.7, 0.5, 0.8))
    )
    noise = _chance(point).normal(0, 0.01, STEPS)
    parts = [min(1, step / 12) for step in range(STEPS)]
    return [
        (1 - part) * early + part * end + 0.5 * math.exp(-0.3 * step) + (noise[step] if step < STEPS - 1 else 0)
        for step, part in enumerate(parts)
    ]


def power_law(point: Point, deviation: float = 0.01) -> Curve:
    """Curves that rarely cross, with a noise that the differences between good points do not exceed by much."""
    rate, size, mix = math.log10(point["rate"]) / 4 + 1, math.log2(point["size"]) / 10, point["mix"]
    end = 0.1 + 0.6 * (rate - 0.65) ** 2 + 0.3 * (size - 0.7) ** 2 + 0.4 * (mix - 0.3) ** 2 + 0.2 * rate * size * mix
    power, noise = 0.4 + 0.4 * point["smooth"], _chance(point).normal(0, deviation, LONG)
    return [end + (0.9 - end) * (step + 1) ** -power + noise[step] for step in range(LONG)]


def plateau(point: Point, deviation: float = 0.01) -> Curve:
    """Nothing is learned before a step that depends on the point; the best points learn late."""
    x, y = point["x0"], point["x1"]
    end, begin = 0.1 + (x - 0.8) ** 2 + (y - 0.4) ** 2, 1 + 8 * x + 4 * y
    noise = _chance(point).normal(0, deviation, SHORT)
    return [
        end + (1 - end) * (1 if step < begin else math.exp(-0.5 * (step - begin))) + noise[step]
        for step in range(SHORT)
    ]


def late(point: Point, deviation: float = 0.008) -> Curve:
    """A point learns at a step that depends on it: early ranks are rather the reverse of those at the end."""
    x, y, z = (point[f"x{index}"] for index in range(3))
    middle, noise = 2 + 14 * x * (1 - 0.5 * z) + 5 * (1 - y), _chance(point).normal(0, deviation, STEPS)
    end = _bowl(point)
    return [end + (0.95 - end) / (1 + math.exp(min(50, 0.8 * (step - middle)))) + noise[step] for step in range(STEPS)]


def flat(point: Point, deviation: float = 0.008) -> Curve:
    """The first half of a training shows nothing but noise."""
    end, noise = _bowl(point), _chance(point).normal(0, deviation, STEPS)
    shares = [math.exp(-0.5 * max(0, step + 1 - STEPS // 2)) for step in range(STEPS)]
    return [end + (0.95 - end) * share + noise[step] for step, share in enumerate(shares)]


def diverging(point: Point, deviation: float = 0.01) -> Curve:
    """The best rates are beside those at which a training diverges."""
    rate, decay, clip = (math.log10(point["rate"]) + 5) / 5, (math.log10(point["decay"]) + 6) / 5, point["clip"]
    noise, limit = _chance(point).normal(0, deviation, STEPS), 0.72 - 0.1 * clip
    end = 0.35 - 0.25 * rate + 0.1 * (decay - 0.4) ** 2 + 0.05 * (clip - 0.3) ** 2
    lasts = 2 + 20 * max(0.0, limit + 0.15 - rate) if rate > limit else STEPS
    return [
        (3 if step >= lasts else end + (1 - end) * math.exp(-(0.05 + 0.3 * rate) * (step + 1))) + noise[step]
        for step in range(STEPS)
    ]


def unstable(point: Point, deviation: float = 0.01) -> Curve:
    """As `diverging`, by four parameters together, and losses grow by a hundred times or more."""
    chance = _chance(point)
    noise, growth = chance.normal(0, deviation, STEPS), 10 ** chance.uniform(1, 4)
    pace = math.log10(point["rate"]) - 0.5 * math.log10(point["batch"] / 64) - math.log10(1 - point["momentum"])
    end = 0.2 + 0.06 * (pace + 0.8) ** 2 + 0.02 * (math.log10(point["decay"]) + 3) ** 2 + 0.1 * point["momentum"] ** 2
    lasts = STEPS if pace < -0.5 else 1 + 10 * math.exp(-2 * (pace + 0.5))
    return [
        (growth if step >= lasts else end + (1.2 - end) * (step + 1) ** -0.8) * (1 + noise[step])
        for step in range(STEPS)
    ]


def _bowl(point: Point) -> float:
    x, y, z = (float(point[f"x{index}"]) for index in range(3))
    return 0.1 + 1.2 * (x - 0.65) ** 2 + 0.8 * (y - 0.3) ** 2 + 0.5 * (z - 0.5) ** 2


def _chance(point: Point) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(sorted(point.items())).encode()))


_RATES = np.logspace(-4, -0.5, 15)
_WIDTHS_OF_LAYERS = (8, 16, 32, 64)


@cache
def _digits() -> dict[tuple[int, int], Curve]:
    """Return the error rate after each epoch of networks with one hidden layer."""
    pixels, digits = load_digits(return_X_y=True)
    of_training = train_test_split(pixels / 16, digits, test_size=0.4, random_state=0)
    places = product(range(len(_RATES)), _WIDTHS_OF_LAYERS)
    return {(rate, width): _digits_curve(_RATES[rate], width, *of_training) for rate, width in places}


def _digits_curve(rate: float, width: int, seen: Any, held_out: Any, answers: Any, right: Any) -> Curve:
    model, curve = MLPClassifier((width,), learning_rate_init=rate, random_state=0), []
    for _ in range(STEPS):
        model.partial_fit(seen, answers, classes=range(10))
        curve.append(1 - float(model.score(held_out, right)))
    return curve


def digits(point: Point) -> Curve:
    width = min(_WIDTHS_OF_LAYERS, key=lambda one: abs(one - point["width"]))
    return _digits()[int(np.abs(np.log(_RATES / point["rate"])).argmin()), width]


_PENALTIES, _GAMMAS = np.logspace(-3, 4, 15), np.logspace(-6, 1, 15)


@cache
def _breast_cancer() -> dict[tuple[int, int], float]:
    """Return the error rates of support vector machines, cross-validated in five folds."""
    features, answers = load_breast_cancer(return_X_y=True)

    def error(penalty: float, gamma: float) -> float:
        model = make_pipeline(StandardScaler(), SVC(C=penalty, gamma=gamma))
        return 1 - float(cross_val_score(model, features, answers, cv=5).mean())

    return {place: error(_PENALTIES[place[0]], _GAMMAS[place[1]]) for place in product(range(15), range(15))}


def breast_cancer(point: Point) -> Curve:
    place = [
        int(np.abs(np.log(grid / point[name])).argmin()) for grid, name in ((_PENALTIES, "penalty"), (_GAMMAS, "gamma"))
    ]
    return [_breast_cancer()[place[0], place[1]]]


def _log(low: float, high: float) -> dict[str, Any]:
    return {"type": "float", "low": low, "high": high, "log": True}


def _unit() -> dict[str, Any]:
    return {"type": "float", "low": 0.0, "high": 1.0}


TASKS = {
    "branin": Task(floats(2, 0, 1), branin, 0.397887),
    "hartmann6": Task(floats(6, 0, 1), hartmann, -3.32237),
    "rosenbrock10": Task(floats(10, 0.01, 10, log=True), rosenbrock),
    "breast_cancer": Task({"penalty": _log(1e-3, 1e4), "gamma": _log(1e-6, 10)}, breast_cancer),
    "curves": Task(
        {
            "rate": _log(1e-4, 1),
            "width": {"type": "int", "low": 8, "high": 512, "log": True},
            "drop": {"type": "float", "low": 0.0, "high": 0.8},
        },
        simulated_curve,
        seconds=lambda point: 5 + point["width"] / 50,
        steps=STEPS,
        noiseless=partial(simulated_curve, deviation=0),
    ),
    "mf_hartmann": Task(floats(6, 0, 1), partial(mf_hartmann, 0.1, 0.5), -3.32237, steps=STEPS),
    "mf_hartmann_noisy": Task(floats(6, 0, 1), partial(mf_hartmann, 0.5, 0.2), -3.32237, steps=STEPS),
    "crossing": Task(
        {name: _unit() for name in ("rate", "depth", "decay")},
        crossing,
        least=0.1,
        steps=STEPS,
        noiseless=partial(crossing, deviation=0),
    ),
    "misleading": Task(floats(4, 0, 1), misleading, 0.05, steps=STEPS),
    "late": Task(floats(3, 0, 1), late, 0.1, steps=STEPS, noiseless=partial(late, deviation=0)),
    "diverging": Task(
        {"rate": _log(1e-5, 1), "decay": _log(1e-6, 0.1), "clip": _unit()},
        diverging,
        least=0.175,
        steps=STEPS,
        noiseless=partial(diverging, deviation=0),
    ),
    "unstable": Task(
        {
            "rate": _log(1e-5, 1),
            "batch": {"type": "int", "low": 8, "high": 512, "log": True},
            "momentum": {"type": "float", "low": 0.0, "high": 0.99},
            "decay": _log(1e-6, 0.1),
        },
        unstable,
        least=0.2715,
        steps=STEPS,
        noiseless=partial(unstable, deviation=0),
    ),
    "flat": Task(floats(3, 0, 1), flat, 0.1, steps=STEPS, noiseless=partial(flat, deviation=0)),
    "power_law": Task(
        {
            "rate": _log(1e-4, 1),
            "size": {"type": "int", "low": 1, "high": 1024, "log": True},
            "mix": _unit(),
            "smooth": _unit(),
        },
        power_law,
        least=0.155,
        seconds=lambda point: 1 + point["size"] / 512,
        steps=LONG,
        noiseless=partial(power_law, deviation=0),
    ),
    "plateau": Task(floats(2, 0, 1), plateau, 0.106, steps=SHORT, noiseless=partial(plateau, deviation=0)),
    "digits": Task(
        {"rate": _log(1e-4, 0.3), "width": {"type": "int", "low": 8, "high": 64, "log": True}},
        digits,
        seconds=lambda point: 5 + point["width"] / 8,
        steps=STEPS,
    ),
}


def prepared(name: str) -> Task:
    """Return the task after computing its table, if it has one."""
    task = TASKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks that have not converged are expected
        task.curve({name: one["low"] for name, one in task.space.items()})
    return task
