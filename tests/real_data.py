"""Where the real MQ2008 data is, which users bring themselves."""

import os
from pathlib import Path

import pytest

FOLDS = Path(os.environ.get("MCFAIR_DATA") or "nowhere")

needs_mq2008 = pytest.mark.skipif(
    not (FOLDS / "Fold1" / "test.txt").exists(), reason="MCFAIR_DATA does not name a folder with MQ2008's folds"
)
