"""Trace: what a run gives, and how it is kept on disk."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray, IntArray
from ..errors import TraceError
from ..state import State

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Trace", "new_folder"]


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Give a folder that becomes `target` when all went well and vanishes when not; fail at once if it cannot."""
    if target.exists():
        raise TraceError(f"{target} exists already; results are written to a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise TraceError(f"cannot write to {target.parent}: {error.strerror}") from None
    try:
        yield draft
        draft.chmod(0o755)
        draft.rename(target)
    except OSError as error:
        raise TraceError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trace:
    """Result of one run: figures at every checkpoint, figures of every query, the final state, and how it came about.

    Attributes
    ----------
    checkpoints : (m,) int array
        After how many sessions the figures were taken; the last is the end of the run.
    unfairness_at : (m,) array
        Mean unfairness (Eq. 8) over the queries visited so far.
    relative_unfairness_at : (m,) array
        The same with each query's unfairness divided by its visits squared: it does not grow with time.
    cndcg_at, ndcg_at : (m, k) arrays
        Cumulative NDCG@1..k (Eq. 6), and plain mean NDCG@1..k over all sessions so far.
    query_ids : list of str
    query_unfairness : (queries,) array
    query_ndcg : (queries, k) array
        Mean NDCG@1..k over the sessions of each query; nan for a query that was never visited or is not judged.
    query_judged : (queries,) bool array
        Whether the query counts in the figures: false for training and validation queries under preset "paper".
    query_sessions : (queries,) int array
        Sessions of each query in this run.
    state : State
        What was observed, with what was there before the run.
    lists, clicks : (sessions, k) arrays or None
        Each session's list, as positions in its query with -1 past the end, and which entries were clicked.
    arrivals : (sessions,) int array or None
        Each session's query; kept with the lists.
    provenance : dict
        Policy, setting, seed, data, versions: all that is needed to run it again, and how long it took.
    """

    checkpoints: IntArray
    unfairness_at: FloatArray
    relative_unfairness_at: FloatArray
    cndcg_at: FloatArray
    ndcg_at: FloatArray
    query_ids: list[str]
    query_unfairness: FloatArray
    query_ndcg: FloatArray
    query_judged: npt.NDArray[np.bool_]
    query_sessions: IntArray
    state: State
    provenance: dict[str, Any]
    lists: npt.NDArray[np.int32] | None = None
    clicks: npt.NDArray[np.bool_] | None = None
    arrivals: npt.NDArray[np.int32] | None = None

    @property
    def unfairness(self) -> float:
        """Mean unfairness at the end."""
        return float(self.unfairness_at[-1])

    @property
    def relative_unfairness(self) -> float:
        """Mean of unfairness over visits squared at the end."""
        return float(self.relative_unfairness_at[-1])

    @property
    def cndcg(self) -> dict[int, float]:
        """Cumulative NDCG at the end, by cutoff from 1."""
        return {k: float(value) for k, value in enumerate(self.cndcg_at[-1], start=1)}

    @property
    def ndcg(self) -> dict[int, float]:
        """Mean NDCG over all sessions, by cutoff from 1."""
        return {k: float(value) for k, value in enumerate(self.ndcg_at[-1], start=1)}

    @property
    def sessions(self) -> int:
        """Sessions played."""
        return int(self.checkpoints[-1])

    @property
    def seconds(self) -> float:
        """Wall time of ranking, users, state and metrics; loading, arrivals and compilation are not in it."""
        return float(self.provenance["seconds"])

    def __repr__(self) -> str:
        k = self.cndcg_at.shape[1]
        return (f"Trace({self.provenance['policy']}, {self.provenance['setting']['mode']}, {self.sessions:,} sessions: "
                f"unfairness {self.unfairness:.4g}, cNDCG@{k} {self.cndcg[k]:.4g})")  # fmt: skip

    def frame(self) -> pl.DataFrame:
        """Figures at checkpoints as a tidy table: one row per checkpoint, metric and cutoff."""
        import polars as pl

        m, k = self.cndcg_at.shape
        columns: list[tuple[str, int | None, FloatArray]] = [
            ("unfairness", None, self.unfairness_at),
            ("relative_unfairness", None, self.relative_unfairness_at),
            *(("cndcg", j + 1, self.cndcg_at[:, j]) for j in range(k)),
            *(("ndcg", j + 1, self.ndcg_at[:, j]) for j in range(k)),
        ]
        return pl.DataFrame(
            {
                "policy": [self.provenance["policy"]] * (m * len(columns)),
                "setting": [self.provenance["setting"]["mode"]] * (m * len(columns)),
                "seed": np.full(m * len(columns), self.provenance["seed"], np.uint64),
                "sessions": np.tile(self.checkpoints, len(columns)),
                "metric": [name for name, _, _ in columns for _ in range(m)],
                "k": pl.Series([cutoff for _, cutoff, _ in columns for _ in range(m)], dtype=pl.Int32),
                "value": np.concatenate([values for _, _, values in columns]),
            }
        )

    def queries(self) -> pl.DataFrame:
        """Figures of each query: its unfairness and mean NDCG@1..k in this run."""
        import polars as pl

        return pl.DataFrame(
            {
                "query": pl.Series(self.query_ids, dtype=pl.String),
                "items": np.diff(self.state.offsets),
                "sessions": self.query_sessions,
                "visits": self.state.visits,
                "judged": self.query_judged,
                "unfairness": self.query_unfairness,
                **{f"ndcg@{j + 1}": self.query_ndcg[:, j].copy() for j in range(self.query_ndcg.shape[1])},
            }
        )

    def save(self, folder: str | Path) -> Path:
        """Write the run to a new folder, whole or not at all.

        The folder gets `run.json`, `metrics.parquet`, `queries.parquet`, `state.parquet` and, if lists were recorded,
        `sessions.parquet`.
        """
        with new_folder(Path(folder)) as draft:
            for name, frame in self._frames().items():
                frame.write_parquet(draft / f"{name}.parquet")
            (draft / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.provenance)) + b"\n")
        return Path(folder)

    def _frames(self) -> dict[str, pl.DataFrame]:
        import polars as pl

        state = self.state
        item = np.arange(state.C.size) - np.repeat(state.offsets[:-1], np.diff(state.offsets))
        frames = {
            "metrics": self.frame(),
            "queries": self.queries(),
            "state": pl.DataFrame(
                {
                    "query": np.repeat(np.arange(state.visits.size), np.diff(state.offsets)),
                    "item": item,
                    **{f"F{j + 1}": state.F[:, j].copy() for j in range(state.F.shape[1])},
                    "C": state.C,
                    "E": state.E,
                }
            ),
        }
        if self.lists is not None and self.clicks is not None and self.arrivals is not None:
            ranks = self.lists.shape[1]
            frames["sessions"] = pl.DataFrame(
                {
                    "query": self.arrivals,
                    **{f"item{j + 1}": self.lists[:, j].copy() for j in range(ranks)},
                    **{f"click{j + 1}": self.clicks[:, j].copy() for j in range(ranks)},
                }
            )
        return frames

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        """Read a run that `save` wrote."""
        import polars as pl

        source = Path(folder)
        try:
            provenance = msgspec.json.decode((source / "run.json").read_bytes())
            metrics = pl.read_parquet(source / "metrics.parquet")
            queries = pl.read_parquet(source / "queries.parquet")
            items = pl.read_parquet(source / "state.parquet")
            log = source / "sessions.parquet"
            sessions = pl.read_parquet(log) if log.exists() else None
        except (OSError, msgspec.DecodeError, pl.exceptions.PolarsError) as error:
            raise TraceError(f"{source} is not a saved run: {error}") from None

        def metric(name: str) -> FloatArray:
            rows = metrics.filter(pl.col("metric") == name)
            values = rows["value"].to_numpy()
            return values.reshape(-1, checkpoints.size).T.copy()

        def columns(frame: pl.DataFrame, prefix: str, dtype: Any) -> Any:
            names = [name for name in frame.columns if name.rstrip("0123456789") == prefix and name != prefix]
            return np.ascontiguousarray(frame.select(names).to_numpy().astype(dtype))

        checkpoints = metrics.filter(pl.col("metric") == "unfairness")["sessions"].to_numpy()
        offsets = np.concatenate(([0], np.cumsum(queries["items"].to_numpy())))
        state = State(
            offsets=offsets,
            p=np.array(provenance["examination"]),
            F=columns(items, "F", np.int32),
            C=items["C"].to_numpy().astype(np.int32),
            visits=queries["visits"].to_numpy().copy(),
        )
        return cls(
            checkpoints=checkpoints,
            unfairness_at=metric("unfairness")[:, 0],
            relative_unfairness_at=metric("relative_unfairness")[:, 0],
            cndcg_at=metric("cndcg"),
            ndcg_at=metric("ndcg"),
            query_ids=queries["query"].to_list(),
            query_unfairness=queries["unfairness"].to_numpy(),
            query_ndcg=columns(queries, "ndcg@", np.float64),
            query_judged=queries["judged"].to_numpy(),
            query_sessions=queries["sessions"].to_numpy(),
            state=state,
            provenance=provenance,
            lists=None if sessions is None else columns(sessions, "item", np.int32),
            clicks=None if sessions is None else columns(sessions, "click", np.bool_),
            arrivals=None if sessions is None else sessions["query"].to_numpy(),
        )
