"""Renders an experiment's charts with Optuna's plotting: `python -m service.mirror.charts.renderer FILE DIRECTORY`.

It runs in a process of its own: rendering takes seconds of CPU time and more memory than the rest of the service, and a
crash in it must not stop the service. FILE is the number of an open file with the ChartData. It exits when its standard
input ends.
"""

import logging
import os
import sys
import threading
import warnings
from pathlib import Path

import matplotlib as mpl
import optuna

from service.mirror.charts.chart_data import ChartData
from service.mirror.charts.optuna_charts import charts_of
from service.mirror.charts.renderer_process import UNFINISHED_SUFFIX
from service.mirror.charts.score_charts import note_on_scores

DOTS_PER_INCH = 110
log = logging.getLogger("paceline.charts")  # to stdout; libraries log harmless messages to stderr
log.addHandler(logging.StreamHandler(sys.stdout))
log.propagate = False


def render(data: ChartData, directory: Path) -> list[Path]:
    """Write all charts that the data allows, as PNG. A chart that fails is left out, and the log says why."""
    written = []
    for name, draw in charts_of(data):
        path = directory / f"{name}.png"
        mpl.rcdefaults()  # some of Optuna's plots change the style
        try:
            draw()
            if data.by_score and name != "learning_curves":
                mpl.pyplot.gcf().suptitle(note_on_scores(data), y=1.02, va="bottom", fontsize="medium")
            unfinished = path.with_suffix(UNFINISHED_SUFFIX)
            mpl.pyplot.gcf().savefig(unfinished, dpi=DOTS_PER_INCH, bbox_inches="tight", format="png")
            written.append(unfinished.rename(path))
        except Exception:  # other charts may still succeed
            log.exception("the chart %s could not be rendered", name)
        finally:
            mpl.pyplot.close("all")
    return written


def _exit_when_input_ends() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    os.nice(10)
    warnings.simplefilter("ignore")  # Optuna's plotting is experimental; Matplotlib lacks glyphs of some names
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    threading.Thread(target=_exit_when_input_ends, daemon=True).start()
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        data = ChartData.model_validate_json(file.read())
    render(data, Path(sys.argv[2]))


if __name__ == "__main__":
    mpl.use("Agg")
    main()
