"""What a policy is: an immutable specification that ranks the items of one query; and the registry of them."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform, get_args, get_type_hints

import msgspec
import numpy as np

from .._jit import AnyKernel, Kernel, Signature, kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..errors import PolicyError, checked, choices, unknown
from ..random import POLICY, TIES, Draws, draws, uniform
from ..state import Query, State

__all__ = ["NonNegative", "Policy", "Share", "Ties", "parse_policies", "parse_policy", "policies", "register"]


Ties = Literal["index", "random", "least-exposed"]
"""How items of equal score are ordered: lowest index first, at random, or the least exposed first."""

NonNegative = Annotated[float, msgspec.Meta(ge=0.0, description="a finite number of at least 0")]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")]

# Whatever the policy, a kernel is compiled for one signature, (q, theta, rng, out), so the loop is compiled once.
EXAMPLE_QUERY = Query(
    R=np.zeros(1), E=np.zeros(1), F=np.zeros((1, 1), np.int32), p=np.zeros(1), visits=np.zeros((), np.int64),
    prior_strength=0.0, memory=np.zeros(1),
)  # fmt: skip
EXAMPLE_DRAWS = draws(seed=0, purpose=POLICY)
SCORE = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1))
RANK = (EXAMPLE_QUERY, np.zeros(1), EXAMPLE_DRAWS, np.zeros(1, np.int64))
SCORE_SIGNATURE, RANK_SIGNATURE = Signature(*SCORE), Signature(*RANK)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Policy:
    """Base of all policies: subclass it, annotate the parameters, and give `score` or `rank`.

    A subclass becomes a frozen, keyword-only dataclass whose parameters are converted and checked when it is made.
    A policy holds no state of a run; its repr is its identity, and `parse_policy` reads it back.

    Attributes
    ----------
    kernel
        The compiled form of `score` or `rank`: a function of (q, theta, rng, out) marked with `mcfair.kernel`, or one
        that Numba compiled. If given, the method need not be. `theta` holds the parameters in the order in which they
        are declared, as floats; a choice among words is its place among them.
    ranks
        Whether the kernel writes a list, as `rank` returns it, instead of scores. It may leave a session to the
        policy's own `rank` by writing -1 at its first place.
    fits
        How often in a run `prepare` is called, at evenly spaced moments beginning with the start.
    needs_features
        Whether `prepare` looks at `data.X`.

    Examples
    --------
    >>> class Newest(Policy):
    ...     weight: float = 1.0
    ...     def score(self, q):
    ...         return q.R - self.weight * np.arange(q.R.size)
    >>> Newest(weight=2)
    Newest(weight=2.0)
    """

    kernel: ClassVar[AnyKernel | None] = None
    ranks: ClassVar[bool] = False
    fits: ClassVar[int] = 1
    needs_features: ClassVar[bool] = False
    parameter_hints: ClassVar[dict[str, Any]]  # filled in by parameter_types

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "score" in own or "rank" in own:
            if "kernel" not in own:
                cls.kernel = None  # an inherited one would be another policy's
            if "ranks" not in own:
                cls.ranks = "rank" in own
        if cls.kernel is not None and not isinstance(cls.kernel, Kernel):
            cls.kernel = Kernel(getattr(cls.kernel, "py_func", cls.kernel))  # a plain function, or Numba's
        dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
        refuse_surplus(cls)

    def __post_init__(self) -> None:
        for name, hint in parameter_types(type(self)).items():
            value = checked(f"{type(self).__name__}: {name}", hint, getattr(self, name), PolicyError)
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in parameter_types(type(self)))
        return f"{type(self).__name__}({values})"

    @property
    def label(self) -> str:
        """Its repr without the parameters that have their default value, for tables and plots."""
        cls = type(self)
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        changed = [f"{name}={getattr(self, name)!r}" for name in defaults if getattr(self, name) != defaults[name]]
        return f"{cls.__name__}({', '.join(changed)})" if changed else cls.__name__

    @property
    def theta(self) -> FloatArray:
        """The parameters as a kernel sees them."""
        values = [
            float(choices(hint).index(getattr(self, name)) if choices(hint) else getattr(self, name))
            for name, hint in parameter_types(type(self)).items()
        ]
        return np.array(values or [0.0])

    def score(self, q: Query) -> FloatArray:
        """One number per item, the highest ranked first; by default what the kernel writes, shape (n,).

        A score is a function of the view alone; a policy that draws gives `rank`.
        """
        if self.kernel is None or self.ranks:
            raise PolicyError(f"{type(self).__name__} does not rank by a score")
        out = np.empty(q.R.size)
        self.kernel(q, self.theta, EXAMPLE_DRAWS, out)
        return out

    def rank(self, q: Query, rng: Draws) -> IntArray:
        """Return the list for one session: min(k_s, n) distinct positions in the item order of the view."""
        pi = np.empty(min(q.p.size, q.R.size), np.int64)
        if self.ranks and self.kernel is not None:
            self.kernel(q, self.theta, rng, pi)
        else:
            scores = np.ascontiguousarray(self.score(q), dtype=np.float64)
            luck = rng._replace(purpose=np.uint64(TIES))
            if top_k(scores, q.E, self.tie_rule, luck, *room_for(scores.size), pi) != OK:
                raise PolicyError(f"{self!r} gave a score that is no number")
        return pi

    @property
    def tie_rule(self) -> int:
        """How the base orders equal scores: the place of the parameter `ties`, if there is one, among its choices."""
        return BY_INDEX if self.ranks else TIE_RULES[getattr(self, "ties", "index")]

    def terms(self, q: Query) -> dict[str, FloatArray]:
        """Summands of the score by name, each of shape (n,), for explanations; empty for a policy without them."""
        return {}

    def prepare(self, data: Dataset, state: State, rng: Draws) -> Sequence[Any] | FloatArray | None:
        """Make what the policy must remember: one entry per query, handed back as `q.memory`.

        `data.scores` is the relevance the policy may know at this moment, true or estimated; R and the grades are
        hidden. For a policy with a kernel every entry is a float array, all of one length. None keeps what an earlier
        call in the run made.
        """
        return None


def refuse_surplus(cls: type[Policy]) -> None:
    """Make the constructor name an unknown parameter and suggest the right one."""
    original = cls.__init__

    def __init__(self: Policy, **kwargs: Any) -> None:  # noqa: N807
        allowed = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name in kwargs:
            if name not in allowed:
                raise PolicyError(unknown(f"parameter of {cls.__name__}", name, allowed))
        needed = {n for n, f in allowed.items() if f.default is f.default_factory is dataclasses.MISSING}
        missing = sorted(needed - kwargs.keys())
        if missing:
            raise PolicyError(f"{cls.__name__} needs a value for {', '.join(missing)}")
        original(self, **kwargs)

    cls.__init__ = __init__  # type: ignore[assignment,method-assign]


def parameter_types(cls: type[Policy]) -> dict[str, Any]:
    """Name and annotation of each parameter, in order."""
    if "parameter_hints" not in vars(cls):
        hints = get_type_hints(cls, include_extras=True)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        cls.parameter_hints = {field.name: hints[field.name] for field in fields}
    return cls.parameter_hints


# --- ranking by score ------------------------------------------------------------------------------------------------

OK, NOT_A_NUMBER, NOT_A_LIST = range(3)
"""What the loop says of a policy's answer."""

GIVEN_UP = -1
"""What a kernel that writes lists puts first to leave a session to its policy's `rank`."""

BY_INDEX, BY_CHANCE, BY_EXPOSURE = range(3)
TIE_RULES = {word: rule for rule, word in enumerate(get_args(Ties))}

COLUMNS = 8  # of a long list, for a bar that most items do not reach; it serves lists of up to so many ranks
FEW = 24  # so many items are sorted by counting: more would cost more than the branches it saves


class Room(NamedTuple):
    """Where `top_k` works: a shortlist of items, their scores, and for the counting sort their places and order."""

    items: IntArray
    scores: FloatArray
    places: IntArray
    order: IntArray


def room_for(n: int) -> Room:
    """Make room for queries of up to n items; whatever was left in it does not matter."""
    return Room(np.zeros(n + 1, np.int64), np.zeros(FEW), np.zeros(FEW, np.int64), np.zeros(FEW, np.int64))


@kernel
def top_k(scores, E, ties, rng, items, short, places, order, pi):  # type: ignore[no-untyped-def]
    """Write the positions of the highest scores in order (Eq. 19); return OK or NOT_A_NUMBER.

    Scores are hard to foresee, and a branch that depends on one costs more than all the arithmetic around it. So most
    items are passed over, and the rest sorted, without such branches. The four arrays before the last are a `Room`.
    """
    n, k = scores.shape[0], pi.shape[0]
    verdict = OK
    if ties == BY_INDEX and n <= FEW:
        verdict = sort_by_counting(scores, n, places, order)
        for j in range(k):
            pi[j] = order[j]
    elif n > FEW and k <= COLUMNS:
        size = shortlist(scores, kth_column(scores, k), items)
        if ties == BY_INDEX and size <= FEW:
            for i in range(size):
                short[i] = scores[items[i]]
            verdict = sort_by_counting(short, size, places, order)
            for j in range(k):
                pi[j] = items[order[j]]
        else:
            verdict = sort_by_insertion(scores, E, ties, rng, items, size, pi)
    else:
        for d in range(n):
            items[d] = d
        verdict = sort_by_insertion(scores, E, ties, rng, items, n, pi)
    return verdict


@kernel
def kth_column(scores, k):  # type: ignore[no-untyped-def]
    """Give the k-th highest of the maxima of 8 columns: at least k scores reach it, and usually hardly more."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = -np.inf
    for i in range(0, scores.shape[0] - COLUMNS + 1, COLUMNS):
        m0, m1, m2, m3 = max(m0, scores[i]), max(m1, scores[i + 1]), max(m2, scores[i + 2]), max(m3, scores[i + 3])
        m4, m5, m6, m7 = max(m4, scores[i + 4]), max(m5, scores[i + 5]), max(m6, scores[i + 6]), max(m7, scores[i + 7])
    bar = -np.inf
    for m in (m0, m1, m2, m3, m4, m5, m6, m7):
        reached = 0
        for other in (m0, m1, m2, m3, m4, m5, m6, m7):
            reached += 1 if other >= m else 0
        bar = max(bar, m if reached >= k else -np.inf)
    return bar


@kernel
def shortlist(scores, bar, items):  # type: ignore[no-untyped-def]
    """Write the items whose score reaches a bar, or is not a number; return how many they are."""
    size = 0
    for d in range(scores.shape[0]):
        items[size] = d
        size += 0 if scores[d] < bar else 1
    return size


@kernel
def sort_by_counting(scores, n, places, order):  # type: ignore[no-untyped-def]
    """Order n scores by counting, for each, those that stand before it; lower index first if equal."""
    wrong = 0
    for a in range(n):
        s = scores[a]
        wrong += 1 if s != s else 0
        before = 0
        for b in range(a):
            ahead = 1 if scores[b] >= s else 0
            before += ahead
            places[b] += 1 - ahead
        places[a] = before
    for a in range(n):
        order[places[a]] = a
    return NOT_A_NUMBER if wrong > 0 else OK


@kernel(inline=False)
def sort_by_insertion(scores, E, ties, rng, items, size, pi):  # type: ignore[no-untyped-def]
    """Insert the items in items[:size] one by one into a list of the best k."""
    k = pi.shape[0]
    by_index = ties == BY_INDEX
    least = -np.inf
    for i in range(size):
        d = items[i]
        s = scores[d]
        if i >= k and (s < least or (by_index and s == least)):
            continue
        if s != s:
            return NOT_A_NUMBER
        j = min(i, k)
        while j > 0:
            above = scores[pi[j - 1]]
            if s < above or (s == above and (by_index or not wins_tie(d, pi[j - 1], E, ties, rng))):
                break
            j -= 1
            if j < k - 1:
                pi[j + 1] = pi[j]
        if j < k:
            pi[j] = d
        least = scores[pi[min(i, k - 1)]]
    return OK


@kernel(inline=False)
def wins_tie(a, b, E, ties, rng):  # type: ignore[no-untyped-def]
    """Whether item a, met after item b of equal score, must stand before it."""
    if ties == BY_EXPOSURE:
        return E[a] < E[b]
    return uniform(rng, a) < uniform(rng, b)


@kernel
def is_list(pi, n):  # type: ignore[no-untyped-def]
    """Whether the entries of pi are distinct positions below n."""
    for j in range(pi.shape[0]):
        if pi[j] < 0 or pi[j] >= n:
            return False
        for i in range(j):
            if pi[i] == pi[j]:
                return False
    return True


# --- registry --------------------------------------------------------------------------------------------------------

REGISTRY: dict[str, type[Policy]] = {}

AnyPolicy = TypeVar("AnyPolicy", bound=type[Policy])


def register(cls: AnyPolicy) -> AnyPolicy:
    """Class decorator: make a policy known by its name to `parse_policy`, the command line and experiments.

    Installed packages can do the same without being imported first, through the entry-point group `mcfair.policies`.
    """
    name = cls.__name__
    if not (isinstance(cls, type) and issubclass(cls, Policy)):
        raise PolicyError(f"only subclasses of Policy can be registered, got {cls!r}")
    if cls.kernel is None and cls.score is Policy.score and cls.rank is Policy.rank:
        raise PolicyError(f"{name} cannot rank: give it a method score or rank, or a kernel")
    known = REGISTRY.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise PolicyError(f"a policy named {name!r} exists already, in {known.__module__}; choose another name")
    REGISTRY[name] = cls
    return cls


def policies() -> dict[str, type[Policy]]:
    """Every known policy by name, those of installed packages included."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="mcfair.policies"):
        if entry.name not in REGISTRY:
            register(entry.load())
    return dict(REGISTRY)


def parse_policy(text: str) -> Policy:
    """Read a policy as its repr writes it; a bare name takes every default, and words need no quotes.

    Examples
    --------
    >>> parse_policy("MCFair(alpha=10, ties=least-exposed)")
    MCFair(alpha=10.0, beta=100.0, scale='max', mc_floor=0.1, ties='least-exposed')
    """
    cls, values = parse_call(text)
    return cls(**values)


def parse_policies(text: str) -> list[Policy]:
    """Read a family of policies: a list of values stands for one policy each, the last parameter changing fastest.

    Examples
    --------
    >>> [policy.label for policy in parse_policies("FairK(beta=[0, 5], scale=[max, mean])")]
    ['FairK', "FairK(scale='mean')", 'FairK(beta=5.0)', "FairK(beta=5.0, scale='mean')"]
    """
    cls, values = parse_call(text)
    choices = [value if isinstance(value, list) else [value] for value in values.values()]
    return [cls(**dict(zip(values, chosen, strict=True))) for chosen in itertools.product(*choices)]


def parse_call(text: str) -> tuple[type[Policy], dict[str, Any]]:
    """Read the class and the parameters of a policy's text."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    call = ast.Call(func=tree, args=[], keywords=[]) if isinstance(tree, ast.Name) else tree
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise PolicyError(f"cannot read policy {text!r}: expected Name or Name(parameter=value, ...)")
    name = call.func.id
    if name not in REGISTRY and name not in policies():
        raise PolicyError(unknown("policy", name, policies()))
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise PolicyError(f"cannot read policy {text!r}: every parameter needs its name, as in {name}(alpha=1)")
    return REGISTRY[name], {str(each.arg): literal(each.value, text.strip()) for each in call.keywords}


def literal(node: ast.expr, text: str) -> Any:
    """Return a value as written: a number, inf, a quoted string, a bare word as it stands, or a list of such."""
    if isinstance(node, ast.List):
        return [literal(each, text) for each in node.elts]
    source = ast.get_source_segment(text, node) or ""
    if source in ("inf", "-inf"):
        return float(source)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return source


def described_parameters(cls: type[Policy]) -> list[str]:
    """Say of each parameter its default and what is allowed, for lists of policies."""
    rows = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint = parameter_types(cls)[field.name]
        allowed = " | ".join(map(str, choices(hint))) or getattr(hint, "__name__", "")
        for bound in get_args(hint):
            allowed = getattr(bound, "description", None) or allowed
        default = "required" if field.default is dataclasses.MISSING else repr(field.default)
        rows.append(f"{field.name} = {default}" + (f"  ({allowed})" if allowed else ""))
    return rows
