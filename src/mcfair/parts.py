"""Parts: immutable, validated specifications such as `MCFair(alpha=10.0)`, and the registries that name them.

A part is one box of the ranking workflow. There are four kinds (policies, click models, estimators and metrics), and
all of them work alike: a subclass declares its parameters as annotated fields, its repr is its identity everywhere and
parses back, and it computes by a compiled kernel or by a method in plain Python.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import keyword
import re
import time
import warnings
from collections.abc import Callable
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from ._jit import AnyKernel, Kernel, compile_kernel
from .arrays import FloatArray
from .errors import MCFairError, MCFairWarning, PartError, checked, choices, unknown

PLUGINS: list[str] = []
"""Modules that were imported for the parts of users; processes that this one starts import them as well."""

NonNegative = Annotated[float, msgspec.Meta(ge=0.0, description="a finite number of at least 0")]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0, description="a number from 0 to 1")]
Shares = Annotated[tuple[Share, ...], msgspec.Meta(min_length=1, description="one or more numbers from 0 to 1")]

AnyPart = TypeVar("AnyPart", bound="Part")
AnyClass = TypeVar("AnyClass", bound="type[Part]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of part: how it is called, how its plain form is called, and the parts registered so far.

    Parameters
    ----------
    name, plural, article
        What messages call one and several of them; the plural also names the command that lists them and the
        entry-point group `mcfair.PLURAL`.
    methods
        Methods of which a part without a kernel must define one.
    error
        What is raised if a part is unknown or invalid.
    """

    name: str
    plural: str
    methods: tuple[str, ...]
    error: type[MCFairError] = PartError
    article: str = "a"
    registry: dict[str, type[Part]] = dataclasses.field(default_factory=dict, compare=False)


COMPILED: WeakKeyDictionary[AnyKernel, tuple[Any, Callable[..., Any]]] = WeakKeyDictionary()
"""The compiled kernels of parts; each has the signature of its kind."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Part:
    """Base of the four kinds of part; subclass `Policy`, `ClickModel`, `Estimator` or `Metric` instead.

    A subclass becomes a frozen, keyword-only dataclass whose parameters are converted and validated on construction.

    Attributes
    ----------
    kind
        The kind of the part, set by the base class of each kind.
    kernel
        The compiled form: a function marked with `mcfair.kernel`, or one compiled by Numba. `theta` holds the
        parameters in the order of their declaration as floats; a choice among words is its index among them.

    unused_parameters
        Parameters of the whole kind that mean nothing for this part, each with the reason; set by the kind's base.

    A parameter that the base of a kind declares belongs to every part of the kind: it is the last in the order of
    parameters, it is no part of `theta`, and the repr states it only where it differs from its default.

    Examples
    --------
    >>> import mcfair as mf
    >>> part = mf.Cascade(stop=1)
    >>> part, isinstance(part, Part), mf.parse_click_model(repr(part)) == part
    (Cascade(stop=1.0), True, True)
    """

    kind: ClassVar[Kind]
    base_of_kind: ClassVar[type[Part]]  # of all parts of the same kind, and the names of the parameters that all have
    common_parameters: ClassVar[frozenset[str]]
    kernel: ClassVar[AnyKernel | None] = None
    unused_parameters: ClassVar[dict[str, str]] = {}
    parameter_hints: ClassVar[dict[str, Any]]  # filled in by parameter_types
    defined_at: ClassVar[int]  # in ns: a file that was edited later does not show the code of the class

    def __init_subclass__(cls, kind: Kind | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.defined_at = time.time_ns()
        if kind is not None:
            cls.kind, cls.base_of_kind = kind, cls
        own = vars(cls)
        if "kernel" not in own and any(method in own for method in cls.kind.methods):
            cls.kernel = None  # an inherited kernel would compute something else than the method
        if cls.kernel is not None and not callable(cls.kernel):
            raise cls.kind.error(f"{cls.__name__}: kernel = {cls.kernel!r} is not allowed: expected a function")
        if cls.kernel is not None and not isinstance(cls.kernel, Kernel):
            cls.kernel = Kernel(getattr(cls.kernel, "py_func", cls.kernel))  # a plain function, or Numba's
        dataclasses.dataclass(frozen=True, kw_only=True, repr=False)(cls)
        if kind is not None:
            cls.common_parameters = frozenset(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]
        refuse_reserved_names(cls)
        refuse_unknown_parameters(cls)

    def __post_init__(self) -> None:
        for name, hint in parameter_types(type(self)).items():
            value = checked(f"{self.name()}: {name}", hint, getattr(self, name), self.kind.error)
            object.__setattr__(self, name, value)
        for name, reason in self.unused_parameters.items():
            value, default = getattr(self, name), getattr(type(self), name)
            if value != default:
                given = f"{self.name()}: {name} = {shortened(value)} is not allowed"
                raise self.kind.error(f"{given}: expected {default!r}, because {self.name()} {reason}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a part from its text, as its repr writes it.

        Parameters
        ----------
        text
            A name, or a name with parameters, such as "MCFair(alpha=10, scale=mean)". A bare name means every default,
            words need no quotes, and `name@5` is short for `name(k=5)`.

        Raises
        ------
        PartError
            If the text names no registered part of this kind or an invalid parameter.

        Examples
        --------
        >>> import mcfair as mf
        >>> mf.ClickModel.parse("Cascade(stop=0.5)"), mf.Metric.parse("ndcg@3")
        (Cascade(stop=0.5), ndcg@3)
        """
        part, values = parse_call(cls.base_of_kind, text)
        return cls.of(part(**values))

    @classmethod
    def parse_all(cls, text: str) -> list[Self]:
        """Parse a family of parts: a list of values is one part for each value, the last parameter changing fastest.

        Examples
        --------
        >>> import mcfair as mf
        >>> [policy.label for policy in mf.Policy.parse_all("FairK(beta=[0, 5], scale=[max, mean])")]
        ['FairK', "FairK(scale='mean')", 'FairK(beta=5.0)', "FairK(beta=5.0, scale='mean')"]
        """
        part, values = parse_call(cls.base_of_kind, text)
        options = [value if isinstance(value, list) else [value] for value in values.values()]
        if not all(options):
            raise cls.kind.error(f"cannot parse {cls.kind.name} {shortened(text)}: a list of values is empty")
        return [cls.of(part(**dict(zip(values, chosen, strict=True)))) for chosen in itertools.product(*options)]

    @classmethod
    def of(cls, value: Part | str) -> Self:
        """Return a part given as itself or as its text.

        Examples
        --------
        >>> import mcfair as mf
        >>> mf.Estimator.of("Beta") == mf.Estimator.of(mf.Beta())
        True
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        what = cls.kind.name if cls is cls.base_of_kind else cls.name()
        raise cls.kind.error(f"expected {cls.kind.article} {what} or its text, got {shortened(value)}")

    @classmethod
    def name(cls) -> str:
        """Return the name that the part is registered and parsed by."""
        return cls.__name__

    def __repr__(self) -> str:
        changed = self.changed_parameters
        common = type(self).common_parameters
        return self.text([name for name in parameter_types(type(self)) if name not in common or name in changed])

    def text(self, names: Any) -> str:
        """Return the text of the part with some of its parameters."""
        return f"{self.name()}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def changed_parameters(self) -> list[str]:
        """Names of the parameters that differ from their default."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every subclass is made a dataclass
        defaults = {field.name: field.default for field in fields}
        return [name for name in parameter_types(type(self)) if getattr(self, name) != defaults[name]]

    @property
    def label(self) -> str:
        """The repr without the parameters that have their default value, for tables and plots."""
        changed = self.changed_parameters
        return self.text(changed) if changed else self.name()

    @property
    def theta(self) -> FloatArray:
        """The parameters as a kernel reads them: floats in the order of declaration.

        What is not a number is nan; a part that has such parameters overrides this property if its kernel needs them.
        """
        numbers = []
        for name, hint in parameter_types(type(self)).items():
            if name not in type(self).common_parameters:
                value, words = getattr(self, name), choices(hint)
                value = words.index(value) if value in words else value
                numbers.append(float(value) if isinstance(value, int | float) else np.nan)
        return np.array(numbers or [0.0])

    def attempt(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call code of the part's own, which may fail in any way.

        Raises
        ------
        MCFairError
            The kind's own error, in one line, if it fails.
        """
        try:
            return method(*args)
        except MCFairError:
            raise
        except AttributeError as error:
            fields = getattr(error.obj, "_fields", None)
            reason = unknown("attribute of a view", str(error.name), fields) if fields else f"AttributeError: {error}"
            raise self.kind.error(f"{self!r} failed: {reason}") from error
        except (Exception, SystemExit) as error:  # a part that ends Python has failed too
            raise self.kind.error(f"{self!r} failed: {type(error).__name__}: {error}") from error

    def compiled(self, *examples: Any) -> tuple[Any, Callable[..., Any]]:
        """Compile the kernel for arguments of the types of these examples; see `Kernel.compile`.

        Raises
        ------
        MCFairError
            The kind's own error, in one line, if the kernel does not compile.
        """
        assert self.kernel is not None
        if self.kernel not in COMPILED:  # to find the types of the examples takes longer than many a run
            owner = f"{self.kind.name} {self.name()}"
            COMPILED[self.kernel] = compile_kernel(self.kernel, owner, self.kind.error, *examples)
        return COMPILED[self.kernel]


def refuse_reserved_names(cls: type[Part]) -> None:
    """Raise an error if a parameter has the name of something that every part of its kind has."""
    base = cls.base_of_kind
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        taken = inspect.getattr_static(base, field.name, None)
        inherited = cls is base or (
            field.name in cls.common_parameters and field.name not in inspect.get_annotations(cls)
        )
        if taken is not None and not isinstance(taken, property) and not inherited:
            reason = f"every {cls.kind.name} has an attribute of that name"
            raise cls.kind.error(f"{cls.__name__}: a parameter cannot be called {field.name}: {reason}")


def refuse_unknown_parameters(cls: type[Part]) -> None:
    """Wrap the constructor such that it names an unknown parameter and suggests the right one."""
    original, fields = cls.__init__, dataclasses.fields(cls)  # type: ignore[arg-type]
    allowed = [field.name for field in fields]
    needed = {field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING}

    @functools.wraps(original)
    def __init__(self: Part, /, **kwargs: Any) -> None:  # noqa: N807
        for name in kwargs:
            if name not in allowed:
                raise cls.kind.error(unknown(f"parameter of {cls.name()}", name, allowed))
        if missing := sorted(needed - kwargs.keys()):
            raise cls.kind.error(f"{cls.name()} needs a value for {', '.join(missing)}")
        original(self, **kwargs)

    signature, common = inspect.signature(original), cls.common_parameters
    shown = [each for name, each in signature.parameters.items() if name not in cls.unused_parameters]
    ordered = signature.replace(parameters=sorted(shown, key=lambda each: each.name in common))
    __init__.__signature__ = ordered  # type: ignore[attr-defined]
    type.__setattr__(cls, "__init__", __init__)


def parameter_types(cls: type[Part]) -> dict[str, Any]:
    """Return the annotation of each parameter by name, in order: its own, then those of every part of its kind."""
    if "parameter_hints" not in vars(cls):
        hints, common = get_type_hints(cls, include_extras=True), cls.common_parameters
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        used = [name for name in names if name not in cls.unused_parameters]
        cls.parameter_hints = {name: hints[name] for name in sorted(used, key=lambda name: name in common)}
    return cls.parameter_hints


# --- registry --------------------------------------------------------------------------------------------------------


def register(cls: AnyClass) -> AnyClass:
    """Register a part by its name: for parsing, the command line, experiments and documentation.

    Installed packages can do the same without being imported first, through the entry-point groups `mcfair.policies`,
    `mcfair.clicks`, `mcfair.estimators` and `mcfair.metrics`.

    Parameters
    ----------
    cls
        A subclass of `Policy`, `ClickModel`, `Estimator` or `Metric`.

    Returns
    -------
    The class itself, so that this is a class decorator.

    Raises
    ------
    PartError
        If the class is not a part, cannot compute anything, or has the name of another registered part.

    Examples
    --------
    >>> import mcfair as mf
    >>> @mf.register
    ... class Newest(mf.Policy):
    ...     weight: float = 1.0
    ...     def score(self, q, rng):
    ...         return q.R - self.weight * np.arange(q.R.size)
    >>> mf.parse_policy("Newest(weight=2)")
    Newest(weight=2.0)
    """
    kind = getattr(cls, "kind", None)
    if not (isinstance(cls, type) and issubclass(cls, Part) and isinstance(kind, Kind)):
        raise PartError(f"only subclasses of Policy, ClickModel, Estimator and Metric can be registered, got {cls!r}")
    base = cls.base_of_kind
    if cls.kernel is None and all(getattr(cls, name) is getattr(base, name) for name in kind.methods):
        raise kind.error(f"{cls.__name__} computes nothing: define {' or '.join(kind.methods)}, or a kernel")
    name, known = cls.name(), kind.registry.get(cls.name())
    if not name.isidentifier() or keyword.iskeyword(name):
        raise kind.error(f"a {kind.name} cannot be called {shortened(name)}: its name must be a Python identifier")
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise kind.error(f"a {kind.name} named {name!r} exists already, in {known.__module__}; choose another name")
    kind.registry[name] = cls
    return cls


def registered(base: type[AnyPart]) -> dict[str, type[AnyPart]]:
    """Return every registered part of one kind by name, those of installed packages included.

    Parameters
    ----------
    base
        `Policy`, `ClickModel`, `Estimator` or `Metric`.

    Returns
    -------
    dict
        The classes by name.

    Raises
    ------
    PartError
        If an installed package offers something that cannot be registered.

    Examples
    --------
    >>> import mcfair as mf
    >>> sorted(mf.registered(mf.Estimator))
    ['Beta', 'IPS', 'Mixture']
    """
    from importlib.metadata import entry_points

    registry = base.kind.registry
    for entry in entry_points(group=f"mcfair.{base.kind.plural}"):
        if entry.name not in registry:
            try:
                register(entry.load())
            except Exception as error:  # somebody else's package must not break the use of the others
                message = f"the {base.kind.name} {entry.name} of an installed package cannot be loaded"
                warnings.warn(f"{message}: {type(error).__name__}: {error}", MCFairWarning, stacklevel=2)
    return dict(registry)  # type: ignore[arg-type]  # a registry holds parts of its own kind only


# --- descriptions ----------------------------------------------------------------------------------------------------


def described_parameters(cls: type[Part]) -> list[str]:
    """Describe each parameter, its default and what is allowed, for tables of parts."""
    rows = []
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name, hint in parameter_types(cls).items():
        allowed = described_hint(hint)
        default = "required" if defaults[name] is dataclasses.MISSING else repr(defaults[name])
        rows.append(f"{name} = {default}" + (f"  ({allowed})" if allowed else ""))
    return rows


def described_hint(hint: Any) -> str:
    """Describe the values that an annotation allows."""
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(described_hint(each) for each in get_args(hint))
    if options := choices(hint):
        return " | ".join(map(str, options))
    descriptions = [each.description for each in get_args(hint) if isinstance(each, msgspec.Meta)]
    plain = "None" if hint is type(None) else getattr(hint, "__name__", "")
    return next((text for text in descriptions if text), plain)


def summary(cls: type[Part]) -> str:
    """Return the first paragraph of a part's documentation in one line; nothing if its author wrote none."""
    text = (inspect.getdoc(cls) or "").split("\n\n")[0]
    generated = text.startswith(f"{cls.__name__}(")  # the signature that dataclasses put in its place
    return "" if generated else " ".join(text.replace("`", "").split())


def shortened(value: Any, most: int = 80) -> str:
    """Return a value quoted, cut where it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- texts: `MCFair(alpha=10)`, families of parts, and `ndcg@5` -------------------------------------------------------

LONGEST_INTEGER = 4096
"""Bits of the largest whole number that is parsed: Python does not write much larger ones in messages."""

LONGEST_TEXT = 10_000
"""Characters of the longest text of a part that is parsed."""


def parse_call(base: type[AnyPart], text: str) -> tuple[type[AnyPart], dict[str, Any]]:
    """Parse the class and the parameters of a part's text."""
    kind = base.kind
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        allowed = f"expected a text of at most {LONGEST_TEXT:,} characters"
        raise kind.error(f"cannot parse {kind.name} {shortened(text)}: {allowed}")
    short = re.fullmatch(r"\s*(\w+)@(\d+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    source = f"{short[1]}(k={short[2]}{', ' + short[3] if short[3] else ''})" if short else text.strip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python about its syntax, such as an unknown escape: the text is data
        try:
            tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
    call = ast.Call(func=tree, args=[], keywords=[]) if isinstance(tree, ast.Name) else tree
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise kind.error(f"cannot parse {kind.name} {shortened(text)}: expected Name or Name(parameter=value, ...)")
    name = call.func.id
    known = registered(base) if name not in kind.registry else kind.registry
    if name not in known:
        hint = "; one of your own needs @mf.register, and must be imported first, as `--plugin FILE` does"
        raise kind.error(unknown(kind.name, name[:80], known) + hint)
    cls: Any = known[name]
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        first = next(iter(parameter_types(cls)), None)
        hint = f", as in {name}({first}=...)" if first else f"; {name} has none"
        raise kind.error(f"cannot parse {kind.name} {shortened(text)}: every parameter needs its name{hint}")
    values: dict[str, Any] = {}
    for each in call.keywords:
        if each.arg in values:
            raise kind.error(f"cannot parse {kind.name} {shortened(text)}: {each.arg} occurs twice")
        values[str(each.arg)] = literal(each.value, source)
    return cls, values


def literal(node: ast.expr, text: str) -> Any:
    """Return a value as written: a number, inf, a quoted string, a bare word, or a list or tuple of such."""
    if isinstance(node, ast.List | ast.Tuple):
        values = [literal(each, text) for each in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    source = ast.get_source_segment(text, node) or ""
    if source in ("inf", "-inf"):
        return float(source)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):  # a type error: a set of lists
        return source
    return source[:80] if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER else value
