"""`mcfair serve` whose background process summarises, fits and guards all the time; run it with the arguments of it."""

from mcfair.cli import app as cli
from mcfair.service import ranker as ranker_module

INTERVAL = 0.005


class BusyRanker(ranker_module.Ranker):
    """Repeats its background work as soon as it has ended."""

    def __init__(self, *args, **settings):
        intervals = dict.fromkeys(("summary_interval", "fit_interval", "guard_interval"), INTERVAL)
        super().__init__(*args, **intervals, **settings)


def main():
    ranker_module.Ranker = BusyRanker
    cli.main()


if __name__ == "__main__":
    main()
