"""Compare the speed of two checkouts in one run: the same simulations in alternating subprocesses.

As a script it measures the checkout that PYTHONPATH names and prints one JSON object. It calls only what every version
of the package has: `synthetic`, `take` and `simulate` with a policy's text and a mode.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

CASES = [
    (name, mode, policy)
    for name in ("mq2008-like", "istella-s-like")
    for mode, policy in (("post-processing", "MCFair(alpha=1, beta=0)"), ("online", "MCFair(alpha=1, beta=100)"))
]


def seconds_per_session(sessions, repeats):
    """Measure every case with the package that is imported: the minimum over some repetitions."""
    import mcfair as mf

    data = {name: mf.synthetic(name) for name in ("mq2008-like", "istella-s-like")}
    data["istella-s-like"] = data["istella-s-like"].take(range(300))
    times = []
    for name, mode, policy in CASES:
        mf.simulate(data[name], policy, mode, steps=1000)  # load the compiled code
        runs = [mf.simulate(data[name], policy, mode, steps=sessions) for _ in range(repeats)]
        times.append(min(trace.seconds / trace.sessions for trace in runs))
    items = [float(data[name].sizes.mean()) for name, _, _ in CASES]
    return {"package": str(Path(mf.__file__).parent), "times": times, "items": items}


def source_folder(path):
    """Return the folder to import mcfair from, given a checkout or its src folder."""
    for folder in (path / "src", path):
        if (folder / "mcfair" / "__init__.py").exists():
            return folder.resolve()
    raise SystemExit(f"{path}: expected a checkout of mcfair, or its src folder")


def measure(source, sessions, repeats):
    """Measure one checkout in a subprocess."""
    command = [sys.executable, __file__, str(sessions), str(repeats)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    result = json.loads(output)
    if Path(result["package"]).parent != source:
        raise SystemExit(f"measured {result['package']} instead of {source}")
    return result


def compare_checkouts(report, path, effort):
    """Print the time per session of this checkout and of another one, and their ratio."""
    from measuring import MICRO, Spread, show_progress

    sources = {"this": source_folder(HERE.parent), "other": source_folder(path)}
    for source in sources.values():
        show_progress(f"compiling {source}")
        measure(source, 1000, 1)
    results = {name: [] for name in sources}
    for i in range(effort.rounds):
        show_progress(f"comparison: round {i + 1} of {effort.rounds}")
        for name in (*sources,) if i % 2 == 0 else reversed((*sources,)):
            results[name].append(measure(sources[name], effort.sessions, effort.few_rounds + 1))
    rows = []
    for i, (data, mode, policy) in enumerate(CASES):
        this, other = (Spread.of([MICRO * each["times"][i] for each in results[name]]) for name in sources)
        rows.append(
            {
                "data": f"{data}, {results['this'][0]['items'][i]:.0f} items a query",
                "setting": mode,
                "policy": policy,
                "this\nµs/session": this,
                "other\nµs/session": other,
                "this / other": this / other,
            }
        )
    report.table(f"This checkout against {sources['other']}, one thread", rows)


if __name__ == "__main__":
    print(json.dumps(seconds_per_session(int(sys.argv[1]), int(sys.argv[2]))))
