"""Exposure measures for ir_measures: `import mcfair.plugs.exposure_measures`, then `EEL @ 10` beside nDCG.

A run may have a column `sample` that numbers several rankings of the same query, as stochastic and amortised rankers
produce them; exposure is the mean over them. Without it a query has one ranking. Candidates are the judged documents
and those in the run; a document that was not judged has grade 0. Equal scores are ranked by falling id, as by
trec_eval and so by most measures of ir_measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from ..arrays import FloatArray
from ..auditing.measures import expected_exposure
from ..data.dataset import relevance
from ..errors import DataError
from ..metrics.exposure import query_unfairness
from ..users.examination import examination

try:
    import ir_measures
    from ir_measures import measures, providers
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"mcfair.plugs.exposure_measures needs {error.name}: pip install ir-measures") from None

__all__ = ["EED", "EEL", "EER", "ExposureProvider", "Unfairness"]

CUTOFF = {"cutoff": measures.ParamInfo(dtype=int, required=False, desc="ranks that are seen")}
ANY = providers.base.Any()


def measure(name: str, title: str, description: str, higher_is_better: bool) -> Any:
    """Define a measure of ir_measures and register it."""
    fields = {
        "__doc__": description,
        "__name__": name,
        "NAME": name,
        "PRETTY_NAME": title,
        "SHORT_DESC": description,
        "SUPPORTED_PARAMS": CUTOFF,
        "higher_is_better": higher_is_better,
    }
    defined = type(f"_{name}", (measures.Measure,), fields)()
    measures.register(defined)
    return defined


EED = measure("EED", "Expected exposure, disparity", "Sum of the squared exposures of the documents.", False)
EER = measure("EER", "Expected exposure, relevance", "Twice the product of exposure and ideal exposure.", True)
EEL = measure("EEL", "Expected exposure, loss", "Squared distance from the exposure under ideal rankings.", False)
Unfairness = measure("Unfairness", "Unfairness of exposure", "Eq. 8 of MCFair on the mean exposure.", False)


class ExposureProvider(providers.Provider):  # type: ignore[misc]  # it has no types
    """Compute the measures of this module."""

    NAME = "mcfair"
    SUPPORTED_MEASURES: ClassVar[list[Any]] = [each(cutoff=ANY) for each in (EED, EER, EEL, Unfairness)]

    def _evaluator(self, measures: Any, qrels: Any) -> ExposureEvaluator:
        return ExposureEvaluator(measures, ir_measures.util.QrelsConverter(qrels).as_dict_of_dict())


class ExposureEvaluator(providers.Evaluator):  # type: ignore[misc]
    """Compute measures of one set of judgements for any number of runs."""

    def __init__(self, measures: Any, qrels: dict[str, dict[str, int]]) -> None:
        super().__init__(measures, set(qrels))
        self.qrels = qrels
        self.y_max = max((grade for grades in qrels.values() for grade in grades.values()), default=0)

    def _iter_calc(self, run: Any) -> Iterator[Any]:
        rankings = rankings_of(run)
        for query, judged in self.qrels.items():
            grades = {str(document): grade for document, grade in judged.items()}
            for each in self.measures:
                cutoff = each.params.get("cutoff")
                E, R, places = exposure(rankings.get(str(query), []), grades, cutoff, self.y_max)
                yield ir_measures.Metric(query_id=query, measure=each, value=value(each.NAME, E, R, places))


def rankings_of(run: Any) -> dict[str, list[list[str]]]:
    """Return the rankings of each query, best first; ids are text, and equal scores are ranked as by trec_eval.

    Raises
    ------
    DataError
        If a ranking has a document twice, or a row no sample.
    """
    table = ir_measures.util.RunConverter(run, strict=False).as_pd_dataframe()
    table = table.assign(**{name: table[name].astype(str) for name in ("query_id", "doc_id")})
    if "sample" not in table.columns:
        table = table.assign(sample=0)
    keys = ["query_id", "sample", "doc_id"]
    if table["sample"].isna().any():
        raise DataError("the run has a column sample without a value in some rows; expected a number in each")
    if (again := table.duplicated(keys)).any():
        query, _, document = table.loc[again.to_numpy(), keys].iloc[0]
        raise DataError(
            f"document {document!r} occurs twice in a ranking of query {query!r}; several rankings of a query are "
            "numbered by a column sample"
        )
    ordered = table.sort_values(["score", "doc_id"], ascending=[False, False], kind="stable")
    found: dict[str, list[list[str]]] = {}
    for (query, _), part in ordered.groupby(["query_id", "sample"], sort=True):
        found.setdefault(query, []).append(part["doc_id"].tolist())
    return found


def exposure(
    rankings: list[list[str]], grades: dict[str, int], cutoff: int | None, y_max: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean exposure and the relevance of every candidate, and the exposure of each place of a full list."""
    documents = list(dict.fromkeys([*grades, *(each for ranking in rankings for each in ranking)]))
    places = np.zeros(len(documents))
    seen = min(cutoff or len(documents), len(documents))
    places[:seen] = examination(seen)
    at = {document: i for i, document in enumerate(documents)}
    E = np.zeros(len(documents))
    for ranking in rankings:
        for weight, document in zip(places, ranking, strict=False):
            E[at[document]] += weight / len(rankings)
    y = np.array([max(grades.get(document, 0), 0) for document in documents])
    return E, relevance(y, max(y_max, 1)), places


def value(name: str, E: FloatArray, R: FloatArray, places: FloatArray) -> float:
    """Return a measure of one query."""
    if name == "Unfairness":
        return float(query_unfairness(E, R)) if R.size > 1 else 0.0
    offsets = np.array([0, R.size])
    disparity, agreement, loss = expected_exposure(E, R, places, offsets, np.array([1]))
    return float({"EED": disparity, "EER": agreement, "EEL": loss}[name][0])


provider = ExposureProvider()
providers.register(provider)
ir_measures.DefaultPipeline.providers.append(provider)  # so that ir_measures.calc finds it
