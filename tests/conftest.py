import pytest
from hypothesis import settings

from mcfair.policy import REGISTRY

# The first call of a kernel compiles it, which no deadline foresees.
settings.register_profile("mcfair", deadline=None)
settings.load_profile("mcfair")


@pytest.fixture(autouse=True)
def registry():
    """Forget the policies that a test registers."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)
