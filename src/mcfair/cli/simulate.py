"""The command that simulates policies."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SettingError
from ..simulation.setting import Setting
from .options import Data, GivenLoading, GivenSetting, Seeds, opened, with_option_groups
from .parts import Plugins
from .render import encoded, progress

if TYPE_CHECKING:
    from ..policies.base import Policy
    from ..simulation.trace import Trace


@with_option_groups
def simulate(
    data: Data,
    loading: GivenLoading,
    policy: Annotated[list[str], typer.Option(metavar="POLICY", help="Such as 'MCFair(alpha=10)'; repeat to compare.")],
    setting: GivenSetting,
    plugin: Plugins = None,
    seeds: Seeds = 1,
    checkpoints: Annotated[str, typer.Option(help="How many, or after which sessions: 100,1000.")] = "20",
    threads: Annotated[int, typer.Option(help="Threads; they change no bit of the result.")] = 1,
    out: Annotated[Path | None, typer.Option(help="New folder for the runs and a summary.json.")] = None,
    record: Annotated[bool, typer.Option("--record", help="With --out: keep every list and click.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Simulate policies with simulated users and measure unfairness and effectiveness."""
    from ..policies.base import parse_policy
    from ..simulation.run import simulate as play
    from ..simulation.trace import new_folder

    chosen = [parse_policy(text) for text in policy]
    if record and out is None:
        raise SettingError("--record keeps lists and clicks on disk: name a folder with --out FOLDER")
    conditions, marks = Setting(**setting), parse_checkpoints(checkpoints)
    with nullcontext() if out is None else new_folder(out) as folder:
        loaded = opened(data, loading, features=any(each.needs_features for each in chosen))
        sessions = loaded.protocol.sessions(conditions.steps)
        options: Any = {"checkpoints": marks, "threads": threads, "record": record}
        with progress(sessions * len(chosen) * seeds) as advance:
            traces = [
                play(loaded, each, conditions, seed=seed, progress=advance, **options)
                for each in chosen
                for seed in range(seeds)
            ]
        summary = described(traces) if json or folder is not None else {}
        if folder is not None:
            save_all(traces, folder, summary)
    if json:
        sys.stdout.write(encoded(summary))
    else:
        seeded = "1 seed" if seeds == 1 else f"{seeds} seeds"
        title = f"{loaded.name}, {conditions.mode}, {traces[0].sessions:,} sessions, {seeded}"
        show(traces, title, chosen, conditions)


def parse_checkpoints(text: str) -> int | list[int]:
    """Parse a number of checkpoints, or the sessions after which they are."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"checkpoints = {text!r}: expected a number, or sessions such as 100,1000") from None
    return numbers if "," in text else numbers[0]


def described(traces: list[Trace]) -> dict[str, Any]:
    """Return runs and their means over seeds as plain data; std is the population's."""
    import numpy as np

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": float(np.mean(values)), "std": float(np.std(values))}

    runs, summary = [], []
    for trace in traces:
        about = trace.provenance
        runs.append(
            {
                "policy": about["policy"],
                "setting": about["setting"]["mode"],
                "steps": about["setting"]["steps"],
                "sessions": trace.sessions,
                "seed": about["seed"],
                "threads": about["threads"],
                "queries": int(trace.query_judged.sum()),
                "clicks": about["setting"]["clicks"],
                "estimator": about["setting"]["estimator"],
                "unfairness": trace.unfairness,
                "cndcg": {str(k): value for k, value in trace.cndcg.items()},
                "ndcg": {str(k): value for k, value in trace.ndcg.items()},
                "metrics": trace.figures,
                "seconds": trace.seconds,
            }
        )
    for policy in dict.fromkeys(run["policy"] for run in runs):
        same = [run for run in runs if run["policy"] == policy]
        summary.append(
            {
                "policy": policy,
                "unfairness": spread([run["unfairness"] for run in same]),
                "cndcg": {k: spread([run["cndcg"][k] for run in same]) for k in same[0]["cndcg"]},
                "metrics": {text: spread([run["metrics"][text] for run in same]) for text in same[0]["metrics"]},
            }
        )
    return {"runs": runs, "summary": summary}


def save_all(traces: list[Trace], folder: Path, summary: dict[str, Any]) -> None:
    """Write every run and the summary into a folder."""
    for number, trace in enumerate(traces, start=1):
        name = trace.provenance["policy"].split("(")[0]
        trace.save(folder / f"{number:03d}-{name}-seed{trace.provenance['seed']}")
    (folder / "summary.json").write_text(encoded(summary))


def show(traces: list[Trace], title: str, policies: list[Policy], setting: Setting) -> None:
    """Print a table: a row for each policy, its means over seeds with the standard deviation in brackets."""
    import numpy as np

    from ..tables import Table, format_spread

    ranks = traces[0].state.p.size
    cutoffs = sorted({1, (ranks + 1) // 2, ranks})
    named = map(repr, setting.metrics)
    texts = list(dict.fromkeys(["unfairness", *(f"cndcg@{k}" for k in cutoffs), f"ndcg@{ranks}", *named]))
    labels = {repr(metric): metric.label for metric in setting.measured(ranks)}
    rows = []
    for policy in dict.fromkeys(policies):
        same = [trace for trace in traces if trace.provenance["policy"] == repr(policy)]
        micros = np.median([1e6 * trace.seconds / trace.sessions for trace in same])
        cells = (format_spread([trace.figures[text] for trace in same]) for text in texts)
        rows.append((policy.label, *cells, f"{micros:.2f}"))
    columns = ("policy", *(labels[text] for text in texts), "µs/session")
    Table(caption=title, columns=columns, rows=tuple(rows)).print()
