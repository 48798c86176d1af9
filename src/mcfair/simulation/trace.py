"""Trace: the result of a run, and how it is stored."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..arrays import BoolArray, CountArray, FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import MCFairWarning, PartError, TraceError
from ..estimators import Estimator
from ..estimators.base import parse_estimator, relevance_intervals
from ..state import State

if TYPE_CHECKING:
    import polars as pl


TABLES = ("metrics.parquet", "queries.parquet", "state.parquet")
"""The files that every saved run has besides run.json."""


# --- files -----------------------------------------------------------------------------------------------------------


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return plain data as JSON that holds its own digest, so that a change of any byte that matters is noticed."""
    return msgspec.json.format(msgspec.json.encode({**content, "digest": digest_of(content)})) + b"\n"


def unsealed(text: bytes) -> dict[str, Any]:
    """Return what was sealed.

    Raises
    ------
    ValueError
        If it is not what was sealed.
    """
    content = msgspec.json.decode(text, type=dict[str, Any])
    if content.pop("digest", None) != digest_of(content):
        raise ValueError("it does not match the digest in it")
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of plain data, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def write_files(folder: Path, about: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> None:
    """Write tables and a `run.json` with their digests and its own into an existing folder.

    Raises
    ------
    OSError
        If they cannot be written, such as on a full disk; Polars would raise errors of its own.
    """
    digests = {}
    for name, table in tables.items():
        target = io.BytesIO()
        table.write_parquet(target)
        digests[name] = hashlib.sha256(target.getvalue()).hexdigest()
        (folder / name).write_bytes(target.getvalue())
    (folder / "run.json").write_bytes(sealed({**about, "files": digests}))


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read what `write_files` wrote, and verify every byte of it.

    Raises
    ------
    OSError, ValueError
        If a file is missing or damaged.
    """
    about = unsealed(read_regular(folder / "run.json"))
    files = {}
    for name, digest in about.pop("files").items():
        files[name] = read_regular(folder / name)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ValueError(f"{name} does not match its digest in run.json")
    return about, files


def read_regular(path: Path) -> bytes:
    """Read a file; raise ValueError for a pipe or a device in its place, which might never end."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is no regular file")
    return path.read_bytes()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes `target` on success and is removed on failure."""
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
    """Result of one run: metrics at every checkpoint and of every query, the final state, and the provenance.

    Attributes
    ----------
    checkpoints : (m,) int array
        Numbers of sessions after which figures were recorded; the last is the end of the run.
    values : dict of (m,) arrays
        Each metric at the checkpoints, by its text: "unfairness", "relative_unfairness", "ndcg@1", "cndcg@1", …, and
        the metrics that the setting names.
    query_values : dict of (queries,) arrays
        The same for each query at the end, for metrics that a single query has; nan for a query that was never visited
        or is not judged.
    query_judged : (queries,) bool array
        Whether the query counts in the figures: false for training and validation queries under preset "paper".
    query_sessions : (queries,) int array
        Sessions of each query in this run.
    data : Dataset
        The queries, without features.
    state : State
        What was observed, including what was there before the run.
    provenance : dict
        Policy, setting, seed, data, versions: all that is needed to run it again, and how long it took.
    estimator : Estimator or None
        How relevance was estimated; None if it is known by its text in `provenance` only.
    lists, clicks : (sessions, k) arrays or None
        Each session's list, as positions in its query with -1 past the end, and which entries were clicked.
    arrivals : (sessions,) int array or None
        Each session's query; kept with the lists.

    Examples
    --------
    >>> from mcfair import simulate
    >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> trace = simulate(data, "MCFair", steps=40, k=2, checkpoints=4, record=True)
    >>> trace.checkpoints.tolist(), trace.values["unfairness"].round(3).tolist()
    ([10, 20, 30, 40], [0.357, 1.192, 2.804, 4.768])
    >>> trace.lists[:3].tolist()
    [[0, 1], [0, 2], [0, 1]]
    >>> trace.items().select("relevance", "exposure").row(0)
    (1.0, 40.0)
    """

    checkpoints: IntArray
    values: dict[str, FloatArray]
    query_values: dict[str, FloatArray]
    query_judged: BoolArray
    query_sessions: IntArray
    data: Dataset
    state: State
    provenance: dict[str, Any]
    estimator: Estimator | None = None
    lists: CountArray | None = None
    clicks: BoolArray | None = None
    arrivals: CountArray | None = None

    @property
    def figures(self) -> dict[str, float]:
        """Every metric at the end of the run, by its text."""
        return {text: float(values[-1]) for text, values in self.values.items()}

    @property
    def unfairness(self) -> float:
        """Mean unfairness (Eq. 8) over the visited queries at the end."""
        return self.figures["unfairness"]

    @property
    def relative_unfairness(self) -> float:
        """Mean of unfairness over visits squared at the end."""
        return self.figures["relative_unfairness"]

    @property
    def cndcg(self) -> dict[int, float]:
        """Cumulative NDCG (Eq. 6) at the end, by cutoff from 1."""
        return self._by_cutoff("cndcg")

    @property
    def ndcg(self) -> dict[int, float]:
        """Mean NDCG over all sessions, by cutoff from 1."""
        return self._by_cutoff("ndcg")

    def _by_cutoff(self, name: str) -> dict[int, float]:
        return {k: float(self.values[f"{name}@{k}"][-1]) for k in range(1, self.state.p.size + 1)}

    @property
    def sessions(self) -> int:
        """Number of sessions played."""
        return int(self.checkpoints[-1])

    @property
    def seconds(self) -> float:
        """Wall time of ranking, users, state and metrics; loading, arrivals and compilation are not in it."""
        return float(self.provenance["seconds"])

    def __repr__(self) -> str:
        k = self.state.p.size
        return (
            f"Trace({self.provenance['policy']}, {self.provenance['setting']['mode']}, {self.sessions:,} sessions: "
            f"unfairness {self.unfairness:.4g}, cNDCG@{k} {self.cndcg[k]:.4g})"
        )

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><th>{escape(name)}</th><td>{value:.5g}</td></tr>" for name, value in self.figures.items())
        title = f"{self.provenance['policy']}, {self.provenance['setting']['mode']}, {self.sessions:,} sessions"
        return f"<table><caption>{escape(title)}</caption><tbody>{rows}</tbody></table>"

    # --- tables ------------------------------------------------------------------------------------------------------

    def frame(self) -> pl.DataFrame:
        """Return the figures at checkpoints as a tidy table, one row per metric and checkpoint.

        Returns
        -------
        polars.DataFrame
            Columns policy, setting, seed, sessions, metric, value.
        """
        import polars as pl

        m, rows = self.checkpoints.size, self.checkpoints.size * len(self.values)
        return pl.DataFrame(
            {
                "policy": [self.provenance["policy"]] * rows,
                "setting": [self.provenance["setting"]["mode"]] * rows,
                "seed": np.full(rows, self.provenance["seed"], np.uint64),
                "sessions": np.tile(self.checkpoints, len(self.values)),
                "metric": [text for text in self.values for _ in range(m)],
                "value": np.concatenate(list(self.values.values())),
            }
        )

    def queries(self) -> pl.DataFrame:
        """Return a table of the queries.

        Returns
        -------
        polars.DataFrame
            Columns query, items, sessions (of this run), visits (in all), judged, and a column for each metric.
        """
        import polars as pl

        return pl.DataFrame(
            {
                "query": pl.Series([self.data.query_id(q) for q in range(self.data.queries)], dtype=pl.String),
                "items": self.data.sizes,
                "sessions": self.query_sessions,
                "visits": self.state.visits,
                "judged": self.query_judged,
                **self.query_values,
            }
        )

    def items(self) -> pl.DataFrame:
        """Return a table of the items of all queries.

        Returns
        -------
        polars.DataFrame
            Columns query, item, provider (if the data has any), grade, relevance (true), estimate, uncertainty, low and
            high (the interval that holds relevance with about 95 %, if the estimator has a posterior), exposure,
            clicks, and shown@1, shown@2, …: how often the item was shown at each rank.
        """
        import polars as pl

        data, state = self.data, self.state
        sizes, names = data.sizes, [data.query_id(q) for q in range(data.queries)]
        ids = data.item_ids
        if ids is None:
            ids = [str(i) for n in sizes.tolist() for i in range(n)]
        named = self.provenance["setting"]["estimator"]
        estimator = state.fitted(parse_estimator(named) if self.estimator is None else self.estimator)
        estimate, uncertainty = estimator.estimates(state.C, state.E, state.F, state.p)
        # Without a posterior, the uncertainty may be no more than a bound of the variance.
        low, high = relevance_intervals(estimate, uncertainty)
        ends = {"low": low, "high": high} if estimator.posterior_size > 0 else {}
        codes = data.providers
        providers = {} if codes is None else {"provider": [data.provider_name(code) for code in codes.tolist()]}
        return pl.DataFrame(
            {
                "query": pl.Series(np.repeat(names, sizes).tolist(), dtype=pl.String),
                "item": pl.Series(list(ids), dtype=pl.String),
                **providers,
                "grade": data.y,
                "relevance": data.R,
                "estimate": estimate,
                "uncertainty": uncertainty,
                **ends,
                "exposure": state.E,
                "clicks": state.C,
                **{f"shown@{j + 1}": state.F[:, j].copy() for j in range(state.F.shape[1])},
            }
        )

    def to_run(self, visit: int = -1) -> pl.DataFrame:
        """Return one recorded list of each query as a run of TREC, for other evaluation tools.

        Parameters
        ----------
        visit
            Which of the sessions of each query in this run, counted from 0; the last one by default. Queries with
            fewer sessions are left out.

        Returns
        -------
        polars.DataFrame
            Columns query_id, doc_id, rank (from 1) and score, which falls with the rank and means nothing else.
            `write_trec` writes it to a file.

        Raises
        ------
        TraceError
            If the run was not recorded (`record=True`).

        Examples
        --------
        >>> from mcfair import simulate
        >>> data = Dataset(offsets=[0, 3], y=[2, 1, 0])
        >>> simulate(data, "TopK", steps=9, k=2, record=True).to_run().rows()
        [('0', '0', 1, 2.0), ('0', '1', 2, 1.0)]
        """
        if self.lists is None or self.arrivals is None:
            raise TraceError("lists were not recorded: simulate with record=True")
        from ..data.frames import run_table

        return run_table(self.data, self.lists, self.arrivals, visit)

    def _sessions(self) -> pl.DataFrame | None:
        import polars as pl

        if self.lists is None or self.clicks is None or self.arrivals is None:
            return None
        ranks = self.lists.shape[1]
        return pl.DataFrame(
            {
                "query": self.arrivals,
                **{f"item{j + 1}": self.lists[:, j].copy() for j in range(ranks)},
                **{f"click{j + 1}": self.clicks[:, j].copy() for j in range(ranks)},
            }
        )

    # --- storage -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the run to a new folder, whole or not at all.

        The folder gets `run.json`, `metrics.parquet`, `queries.parquet`, `state.parquet` and, if lists were recorded,
        `sessions.parquet`.

        Parameters
        ----------
        folder
            The folder to create; its parents are created if they are missing.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        TraceError
            If the folder exists or cannot be written.
        """
        tables = dict(zip(TABLES, (self.frame(), self.queries(), self.items()), strict=True))
        if (sessions := self._sessions()) is not None:
            tables["sessions.parquet"] = sessions
        with new_folder(Path(folder)) as draft:
            write_files(draft, self.provenance, tables)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        """Read a run that `save` wrote.

        Parameters
        ----------
        folder
            The folder that was passed to `save`.

        Returns
        -------
        Trace

        Raises
        ------
        TraceError
            If the folder does not hold a saved run, or a file in it is damaged.
        """
        import polars as pl

        source = Path(folder)
        try:
            return cls._load(source)
        except PartError as error:
            raise TraceError(f"{source}: {error}") from None
        except (OSError, KeyError, TypeError, ValueError, msgspec.DecodeError, pl.exceptions.PolarsError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise TraceError(f"{source} is not a saved run: {reason}") from None

    @classmethod
    def _load(cls, source: Path) -> Trace:
        import polars as pl

        plain = msgspec.json.decode(read_regular(source / "run.json"))
        if "files" in plain or "digest" in plain:
            provenance, files = read_files(source)
        else:  # before version 0.3
            warnings.warn(f"{source} has no digests to verify it by", MCFairWarning, stacklevel=4)
            provenance, files = plain, {path.name: read_regular(path) for path in source.glob("*.parquet")}
        metrics, queries, items = (pl.read_parquet(io.BytesIO(files[name])) for name in TABLES)
        log = files.get("sessions.parquet")
        sessions = None if log is None else pl.read_parquet(io.BytesIO(log))

        def columns(frame: pl.DataFrame, prefix: str, dtype: Any) -> Any:
            names = [name for name in frame.columns if name.rstrip("0123456789") == prefix and name != prefix]
            return np.ascontiguousarray(frame.select(names).to_numpy().astype(dtype))

        texts = metrics["metric"].unique(maintain_order=True).to_list()
        table = metrics["value"].to_numpy().reshape(len(texts), -1)
        data = loaded_data(provenance, queries, items)
        state = State(
            offsets=data.offsets,
            p=np.array(provenance["examination"]),
            F=columns(items, "shown@", np.int32),
            C=items["clicks"].to_numpy().astype(np.int32),
            visits=queries["visits"].to_numpy().copy(),
            estimator=parse_estimator(fitted) if (fitted := provenance["fitted_estimator"]) else None,
        )
        return cls(
            checkpoints=metrics["sessions"].to_numpy()[: table.shape[1]].copy(),
            values=dict(zip(texts, table, strict=True)),
            query_values={text: queries[text].to_numpy() for text in texts if text in queries.columns},
            query_judged=queries["judged"].to_numpy(),
            query_sessions=queries["sessions"].to_numpy(),
            data=data,
            state=state,
            provenance=provenance,
            lists=None if sessions is None else columns(sessions, "item", np.int32),
            clicks=None if sessions is None else columns(sessions, "click", np.bool_),
            arrivals=None if sessions is None else sessions["query"].to_numpy(),
        )


def loaded_data(provenance: dict[str, Any], queries: pl.DataFrame, items: pl.DataFrame) -> Dataset:
    """Rebuild the data of a saved run from its tables; runs of earlier versions have a column group."""
    labels = next((items[name].to_list() for name in ("provider", "group") if name in items.columns), None)
    return Dataset(
        offsets=np.concatenate(([0], np.cumsum(queries["items"].to_numpy()))),
        y=items["grade"].to_numpy(),
        R=items["relevance"].to_numpy(),
        providers=labels,
        query_ids=queries["query"].to_list(),
        item_ids=items["item"].to_list(),
        name=provenance["data"]["name"],
        fingerprint=provenance["data"]["fingerprint"],
    )
