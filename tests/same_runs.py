"""Whether two runs have the same result, to the bit."""

import numpy as np


def same(a, b):
    assert a.values.keys() == b.values.keys()
    assert a.query_values.keys() == b.query_values.keys()
    pairs = [(getattr(a.state, name), getattr(b.state, name)) for name in ("F", "C", "visits")]
    pairs += [(a.values[text], b.values[text]) for text in a.values]
    pairs += [(a.query_values[text], b.query_values[text]) for text in a.query_values]
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
