"""Where the real data is, which users bring themselves: MQ2008, and a small part of the Open Bandit Dataset."""

import os
from pathlib import Path

import pytest

FOLDS = Path(os.environ.get("MCFAIR_DATA") or "nowhere")

needs_mq2008 = pytest.mark.skipif(
    not (FOLDS / "Fold1" / "test.txt").exists(), reason="MCFAIR_DATA does not name a folder with MQ2008's folds"
)

OPEN_BANDIT = FOLDS / "OBD-small"

needs_open_bandit = pytest.mark.skipif(
    not (OPEN_BANDIT / "random-all.csv.gz").exists(), reason="MCFAIR_DATA does not name a folder with OBD-small"
)
