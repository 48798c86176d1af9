"""Compilation: flags, the cache folder, and functions that Numba compiles on first use.

A kernel is a plain Python function made of explicit loops. A call runs it compiled; its `.interpreted` is the plain
function, which returns the same bits. Numba is imported at the first call, never before. Compiled code of this package
is cached across processes in a folder named after a hash of every file that holds a kernel, because Numba itself checks
only the file of the function it compiles and would miss an edit in a helper.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import platformdirs

from .errors import MCFairError, MCFairWarning, unknown

PACKAGE = Path(__file__).parent

INTERPRET = os.environ.get("MCFAIR_JIT") == "0" or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""Whether kernels run as plain Python: thousands of times slower, but a debugger sees every line."""

# nogil: blocks of queries run on threads. error_model: 1/0 is inf as in NumPy, and divisions vectorise.
# Never fastmath: it reorders sums, and compiled results must equal interpreted ones to the bit.
FLAGS = {"nopython": True, "nogil": True, "error_model": "numpy"}


@cache
def cache_folder() -> Path:
    """Return the folder of compiled code for exactly these sources and versions; create it if it is missing."""
    from importlib.metadata import version

    digest = hashlib.sha256()
    for source in sorted(PACKAGE.rglob("*.py")):
        if b"@kernel" in (text := source.read_bytes()):
            digest.update(source.relative_to(PACKAGE).as_posix().encode() + text)
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package}={version(package)}".encode())
    digest.update(platform.python_version().encode())
    name = f"kernels-{digest.hexdigest()[:16]}"
    wanted = platformdirs.user_cache_path("mcfair") / name
    if writable(wanted):
        return wanted
    fallback = Path(tempfile.gettempdir()) / f"mcfair-{os.getuid() if hasattr(os, 'getuid') else 'user'}-{name}"
    if not writable(fallback):
        fallback = Path(tempfile.mkdtemp(prefix="mcfair-"))
    warnings.warn(f"cannot write to {wanted}; compiled code is cached in {fallback}", MCFairWarning, stacklevel=2)
    return fallback


@cache
def nested_folder() -> Path:
    """Return the folder of the code that is compiled into other kernels; Numba's key does not tell the two apart."""
    folder = cache_folder() / "nested"
    folder.mkdir(exist_ok=True)
    return folder


def writable(folder: Path) -> bool:
    """Return whether files can be created in a folder that this user owns; create the folder if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    except OSError:
        return False


@cache
def checked_cache() -> Any:
    """Return Numba's cache of a function, with digests: what is damaged or cut short is compiled again.

    Numba itself would raise an error at every start, or run damaged machine code.
    """
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    class CheckedFile(IndexDataCacheFile):  # type: ignore[misc]  # Numba has no types
        def _dump(self, obj: Any) -> bytes:
            data: bytes = super()._dump(obj)
            return hashlib.sha256(data).digest() + data

        def _load_index(self) -> Any:
            try:
                with Path(self._index_path).open("rb") as file:
                    version, data = pickle.load(file), file.read()
                stamp, overloads = pickle.loads(checked_content(data))
            except Exception:  # there is none yet, or whatever a damaged file makes of itself
                return {}
            return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

        def _load_data(self, name: str) -> Any:
            return pickle.loads(checked_content(Path(self._data_path(name)).read_bytes()))

    class CheckedCache(FunctionCache):  # type: ignore[misc]
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)
            self._cache_file.__class__ = CheckedFile

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:
                return None  # it is compiled again, and the file is written anew

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except OSError as error:
                reason = f"compiled code is not kept in {self.cache_path}: {error.strerror or error}"
                warnings.warn(reason, MCFairWarning, stacklevel=2)

    return CheckedCache


def checked_content(data: bytes) -> bytes:
    """Return what follows a digest; ValueError if it is not what the digest is of."""
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        raise ValueError("damaged")
    return data[32:]


class once(cached_property):  # type: ignore[type-arg]  # noqa: N801  # a decorator
    """A cached property that threads compute once; Python's own has no lock from 3.12 on.

    The lock is Numba's own: one beside it could be taken in the other order by a thread that compiles.
    """

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        from numba.core.compiler_lock import global_compiler_lock

        with global_compiler_lock:
            return super().__get__(instance, owner)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Kernel(Generic[Arguments, Result]):
    """A function that Numba compiles on first use; its body is made of loops over scalars.

    Parameters
    ----------
    function
        The plain function. It may call other kernels. It uses no `**`, no `sum` and no `mean`, whose compiled results
        differ from the interpreted ones in the last bit.
    inline
        Whether it is inlined into the kernels that call it.
    allocates
        Whether it allocates arrays. Kernels of this package that do not are compiled without reference counting, which
        would cost as much as the ranking itself; a user's kernels may always allocate.
    cached
        Whether compiled code is kept across processes; by default if the function is part of this package. A user's
        helper files are invisible to any cache key, and most kernels compile in half a second.
    driver
        Whether it takes functions as arguments. A driver is compiled for kernels by `compile`; a plain call runs it
        interpreted, because its functions may be plain Python.

    Examples
    --------
    >>> import numpy as np
    >>> def largest(x):
    ...     best = x[0]
    ...     for i in range(1, x.shape[0]):
    ...         best = max(best, x[i])
    ...     return best
    >>> fast = Kernel(largest)
    >>> float(fast(np.array([1.0, 3.0, 2.0]))), fast.interpreted is largest
    (3.0, True)
    """

    def __init__(
        self,
        function: Callable[Arguments, Result],
        *,
        inline: bool = True,
        allocates: bool = False,
        driver: bool = False,
        cached: bool | None = None,
    ) -> None:
        self.interpreted = function
        self.inline, self.allocates, self.driver = inline, allocates, driver
        self.cached = PACKAGE in Path(function.__code__.co_filename).parents if cached is None else cached
        self.examples: tuple[Any, ...] | None = None
        self.__name__, self.__module__, self.__doc__ = function.__name__, function.__module__, function.__doc__

    def __repr__(self) -> str:
        return f"<kernel {self.interpreted.__module__}.{self.__name__}>"

    def __reduce__(self) -> Any:
        cloudpickle = sys.modules.get("cloudpickle")
        travelling = cloudpickle.list_registry_pickle_by_value() if cloudpickle else ()
        if self.__module__ in ("__main__", *travelling):  # the receiver has no such module: the function must travel
            return partial(Kernel, inline=self.inline, allocates=self.allocates, driver=self.driver), (
                self.interpreted,
            )
        return self.__name__

    @once
    def compiled(self) -> Any:
        """Return Numba's dispatcher for this function."""
        return self._dispatcher(cache_folder, no_cfunc_wrapper=self.driver)  # a driver is passed to no kernel

    @once
    def nested(self) -> Any:
        """Return Numba's dispatcher where kernels call this function: without the entry points for other callers."""
        return self._dispatcher(nested_folder, no_cpython_wrapper=True, no_cfunc_wrapper=True)

    def _dispatcher(self, folder: Callable[[], Path], **wrappers: bool) -> Any:
        import numba

        flags = FLAGS | {"forceinline": self.inline} | wrappers
        if not self.cached:
            return numba.jit(**flags)(self.interpreted)
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder())
        try:
            dispatcher = numba.jit(cache=True, _nrt=self.allocates, **flags)(self.interpreted)
            dispatcher._cache = checked_cache()(self.interpreted)
            return dispatcher
        finally:
            numba.config.CACHE_DIR = before

    @property
    def _numba_type_(self) -> Any:
        # Numba looks up this attribute on any object: with it, kernels can call kernels.
        return self.nested._numba_type_

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if INTERPRET or self.driver:
            return self.interpreted(*args, **kwargs)
        called: Callable[Arguments, Result] = self.compiled if self.examples is None else self.entry_point
        return called(*args, **kwargs)

    def pin(self, *examples: Any) -> None:
        """Fix the argument types for calls from Python, which then bypass Numba's dispatcher.

        The dispatcher inspects the type of every argument at every call, which takes longer than to rank many items.

        Parameters
        ----------
        *examples
            A value of each argument.
        """
        self.examples = examples

    @once
    def entry_point(self) -> Callable[..., Any]:
        """Return the compiled function for the pinned argument types."""
        assert self.examples is not None
        return self.compile(*self.examples)[1]

    def compile(self, *examples: Any) -> tuple[Any, Callable[..., Any]]:
        """Compile, or load from the cache, for arguments of the types of these examples.

        An example that is a `Signature` marks a function argument: any kernel compiled for that signature can be
        passed there, and this one is not compiled again for each of them.

        Parameters
        ----------
        *examples
            A value of each argument.

        Returns
        -------
        function, entry point
            What can be passed to a kernel as a function, and what can be called without Numba's dispatcher, which would
            inspect the type of every argument again.
        """
        import numba

        types = tuple(each.numba_type() if isinstance(each, Signature) else numba.typeof(each) for each in examples)
        if types not in self.compiled.overloads:
            self.compiled.compile(types)  # which takes Numba's lock, and looks again
        return self.compiled, self.compiled.overloads[types].entry_point


AnyKernel = Kernel[..., Any]
"""A kernel whatever its arguments."""


class Signature:
    """The argument types of a kernel that is passed to another kernel, given by example values.

    Parameters
    ----------
    *examples
        A value of each argument. The kernel returns nothing.
    """

    def __init__(self, *examples: Any) -> None:
        self.examples = examples

    def numba_type(self) -> Any:
        """Return Numba's type of such a function."""
        import numba

        return numba.types.FunctionType(numba.types.void(*map(numba.typeof, self.examples)))


def compile_kernel(
    kernel: AnyKernel, owner: str, error: type[MCFairError], *examples: Any
) -> tuple[Any, Callable[..., Any]]:
    """Compile a kernel; see `Kernel.compile`. If it does not compile, raise an error with the reason in one line."""
    from numba.core.errors import NumbaError

    try:
        return kernel.compile(*examples)
    except (NumbaError, TypeError) as failure:
        raise error(f"the kernel of {owner} does not compile: {explained(str(failure), examples)}") from None


def explained(message: str, examples: tuple[Any, ...]) -> str:
    """Shorten Numba's message to one line; an unknown attribute of a view is answered by what the view has."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", message)  # colours, if colorama is installed
    attribute = re.search(r"Unknown attribute '(\w+)' of type (\w+)", message)
    line = re.search(r'File "([^"]+)", line (\d+)', message)
    where = f" ({Path(line[1]).name}, line {line[2]})" if line else ""
    if attribute:
        named = {type(each).__name__: each._fields for each in examples if hasattr(each, "_fields")}
        fields = next((each for name, each in named.items() if attribute[2].startswith(name)), None)
        if fields:
            return f"{unknown(f'attribute of {attribute[2]}', attribute[1], fields)}{where}"
    mismatch = re.search(r"Signature mismatch: (\d+) argument types given, but function takes (\d+)", message)
    if mismatch:
        return f"it takes {mismatch[2]} arguments, but its kind is called with {mismatch[1]}"
    lines = [each.strip() for each in message.splitlines() if each.strip()]
    useful = [
        each for each in lines if re.match(r"(NameError|Untyped global name|No implementation|Invalid use)", each)
    ]
    return f"{(useful or lines[1:] or lines)[0]}{where}"


@contextmanager
def compile_seconds() -> Iterator[list[float]]:
    """Yield a list that afterwards holds the seconds that were spent compiling, if any were."""
    spent: list[float] = []
    if INTERPRET:
        yield spent
    else:
        from numba.core.event import install_timer

        with install_timer("numba:compile", spent.append):
            yield spent


@overload
def kernel(function: Callable[Arguments, Result], /) -> Kernel[Arguments, Result]: ...
@overload
def kernel(
    *, inline: bool = True, allocates: bool = False, driver: bool = False
) -> Callable[[Callable[Arguments, Result]], Kernel[Arguments, Result]]: ...
def kernel(function: Callable[..., Any] | None = None, /, **options: bool) -> Any:
    """Decorate a function as a kernel: compiled when first called, or as a part of the kernels that call it.

    Parameters
    ----------
    function
        The plain function.
    **options
        `inline`, `allocates` and `driver`, see `Kernel`: `@kernel(allocates=True)`.

    Returns
    -------
    Kernel
        With options, a decorator that returns one.

    Examples
    --------
    >>> @kernel
    ... def total(x):
    ...     s = 0.0
    ...     for i in range(x.shape[0]):
    ...         s += x[i]
    ...     return s
    >>> import numpy as np
    >>> bool(total(np.ones(3)) == total.interpreted(np.ones(3)) == 3.0)
    True
    """
    return Kernel(function) if function is not None else lambda each: Kernel(each, **options)
