"""Put policies of your own on the leaderboard, beside all others and with tests; what is stored is reused.

python studies/beyond/leaderboard.py --plugin mine.py --policy 'Mine(alpha=[0, 1, 10])'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import grid
import msgspec
from boards import merge_boards, read_boards, write_boards
from run import FILE, checked, load_plugin, made_with, options, run, show

import mcfair as mf


def series_of(policies: Sequence[str], estimator: str, label: str) -> tuple[mf.Series, ...]:
    """Return a curve for each class of policy, or one for all under a label."""
    by_name: dict[str, list[str]] = {}
    for text in policies:
        for each in mf.parse_policies(text):
            by_name.setdefault(label or type(each).__name__, []).append(repr(each))
    return tuple(mf.Series(policies=tuple(texts), label=name, estimator=estimator) for name, texts in by_name.items())


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = options(__doc__ or "")
    parser.add_argument(
        "--policy", action="append", required=True, help="'Mine(alpha=[0, 1])': a point for each value; repeatable"
    )
    parser.add_argument("--plugin", action="append", type=Path, default=[], help="file that defines policies")
    parser.add_argument("--estimator", default="", help="how relevance is estimated (default: as the policy prefers)")
    parser.add_argument("--label", default="", help="name on the leaderboard (default: that of the policy)")
    asked = parser.parse_args(words)
    for file in asked.plugin:
        load_plugin(file)
    own = series_of(asked.policy, asked.estimator, asked.label)
    names = [each.name for each in own]
    file = asked.out / FILE
    known = read_boards(file)
    listed = grid.contestants()
    base = listed.compare_with
    others = tuple(each for each in listed.series(slow=False) if each.name == base and base not in names)
    played = run(grid.frontiers((*own, *others), asked.also, quick=asked.quick), asked)
    keys = {board.key for board in known}
    if missing := {board.experiment for board in played.boards if board.key not in keys}:
        print("note: the other policies are not on this leaderboard yet and are run once", file=sys.stderr)
        rest = grid.frontiers(None, asked.also, quick=asked.quick)
        rest.frontiers[:] = [each for each in rest.frontiers if each.name in missing]
        known = tuple(merge_boards(known, run(rest, asked).boards))
    entered = [
        msgspec.structs.replace(board, entries=tuple(entry for entry in board.entries if entry.name in names))
        for board in played.boards
    ]
    merged = merge_boards(known, entered)
    write_boards(file, merged, made_with())
    by_key = {board.key: board for board in merged}
    show(played.builders, [by_key[board.key] for board in played.boards], base, names)
    print(f"Leaderboard: {file.resolve()}")


if __name__ == "__main__":
    checked(main)
