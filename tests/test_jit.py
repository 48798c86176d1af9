import errno
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mcfair import _jit
from mcfair._jit import Kernel, compile_kernel, compile_seconds, kernel
from mcfair.errors import MCFairError, MCFairWarning
from mcfair.metrics.exposure import dots

PRINT_TRACE = """
import mcfair as mf
data = mf.synthetic("mq2008-like").take(range(4))
def show(t):
    print(t, {k: v.tolist() for k, v in t.values.items()}, t.state.F.tolist(), t.state.C.tolist())
for text in ("MCFair", "FairCo(beta=2)", "RandomK", "TopK(ties=random)", "MCFair(ties=least-exposed, scale=mean)"):
    for mode in ("post-processing", "online"):
        show(mf.simulate(data, text, mode, steps=60, seed=1, k=3, metrics="gini,group_unfairness"))
for clicks in ("Cascade", "DBN", "TrustBias", "PositionBased(noise=0.1)"):
    show(mf.simulate(data, "MCFair", "online", steps=60, k=3, clicks=clicks, estimator="IPS(prior_strength=2)"))
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("switch", [{"MCFAIR_JIT": "0"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_interpreted_and_compiled_runs_agree_to_the_bit(switch):
    interpreted = run("import sys\n" + PRINT_TRACE + "assert 'numba' not in sys.modules", **switch)
    assert interpreted == run(PRINT_TRACE)


def test_importing_the_package_does_not_import_numba():
    assert (
        run("import sys, mcfair, mcfair.cli.app; print('numba' in sys.modules, 'polars' in sys.modules)")
        == "False False\n"
    )


def test_a_second_process_loads_compiled_code_from_the_cache():
    code = (
        "import mcfair as mf, numba\n"
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    mf.simulate(mf.synthetic('mq2008-like'), 'MCFair', 'online', steps=100)\n"
        "print(len(recorder.buffer))\n"
    )
    run(code)
    assert run(code) == "0\n"


def test_an_unwritable_home_falls_back_with_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from mcfair.metrics.exposure import dots\n"
        "    import numpy as np\n"
        "    from mcfair.random import uniforms, draws\n"
        "    uniforms(draws(0, 0), 3)\n"
        "    print(dots(np.ones(3), np.ones(3)))\n"
        "print([str(w.message) for w in caught])\n"
    )
    out = run(code, XDG_CACHE_HOME=str(blocked), HOME=str(blocked), TMPDIR=str(tmp_path))
    assert out.startswith("(3.0, 3.0)")
    assert out.count("compiled code is cached in") == 1
    assert list(Path(tmp_path).glob("mcfair-*/**/*.nbi"))


def tenth(x):
    return x / 10.0


@pytest.fixture
def cached_tenth(tmp_path, monkeypatch):
    """A function that makes the kernel `tenth` as a new process would, with a cache folder of its own."""
    monkeypatch.setattr(_jit, "cache_folder", lambda: tmp_path)
    return lambda: Kernel(tenth, cached=True)


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped"])
def test_damaged_compiled_code_is_compiled_again_once(cached_tenth, tmp_path, suffix, damage):
    assert cached_tenth()(5.0) == 0.5
    (file,) = tmp_path.rglob(f"*.{suffix}")
    whole = file.read_bytes()
    for place in (len(whole) // 3, len(whole) // 2, len(whole) - 1):
        flipped = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        file.write_bytes({"cut": whole[:place], "emptied": b"", "flipped": flipped}[damage])
        with compile_seconds() as again:
            assert cached_tenth()(5.0) == 0.5
        with compile_seconds() as loaded:
            assert cached_tenth()(5.0) == 0.5
        assert (len(again), len(loaded)) == (1, 0)


def test_compiled_code_that_cannot_be_kept_is_used_with_a_warning(cached_tenth, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_jit.checked_cache().__mro__[1], "_save_overload", full)
    with pytest.warns(MCFairWarning, match=r"compiled code is not kept in .*: No space left on device"):
        assert cached_tenth()(5.0) == 0.5


def test_threads_compile_a_kernel_once(cached_tenth):
    kernel, ready = cached_tenth(), threading.Barrier(8)

    def call(x):
        ready.wait()
        return kernel(x), kernel.compiled, kernel.nested

    with compile_seconds() as spent, ThreadPoolExecutor(8) as pool:
        done = list(pool.map(call, [5.0] * 8))
    assert len({id(each) for _, each, _ in done}) == len({id(each) for _, _, each in done}) == len(spent) == 1


def test_kernels_call_kernels_and_can_be_pickled():
    @kernel
    def twice(x):
        er, rr = dots(x, x)
        return er + rr

    assert twice(np.ones(4)) == 8.0
    assert pickle.loads(pickle.dumps(dots))(np.ones(2), np.ones(2)) == (2.0, 2.0)
    assert repr(dots) == "<kernel mcfair.metrics.exposure.dots>"


@partial(Kernel, cached=True)
def half(x):
    return x / 2.0


@partial(Kernel, cached=True)
def quarter(x):
    return half(x) / 2.0


def test_a_kernel_that_was_compiled_into_another_is_still_callable_from_python():
    assert quarter(4.0) == 1.0
    assert half(4.0) == 2.0  # what the cache has for `quarter` has no entry point


def test_a_driver_runs_interpreted_when_it_is_called_with_python_functions():
    @kernel(driver=True)
    def twice(function, x):
        return function(function(x))

    assert twice(lambda x: x + "!", "a") == "a!!"
    assert repr(twice).endswith("twice>")


def test_an_error_of_numba_is_one_line():
    @kernel
    def broken(x):
        return x.nothing

    with pytest.raises(MCFairError) as caught:
        compile_kernel(broken, "policy Broken", MCFairError, 1.0)
    message = str(caught.value)
    assert message.startswith(
        "the kernel of policy Broken does not compile: Unknown attribute 'nothing' of type float64"
    )
    assert message.endswith(")")
    assert "test_jit.py, line" in message
    assert "\n" not in message


def test_the_time_spent_compiling_is_measured():
    @kernel
    def thrice(x):
        return 3.0 * x

    with compile_seconds() as first:
        thrice(2.0)
    with compile_seconds() as second:
        thrice(2.0)
    assert sum(first) > 0.0
    assert second == []
