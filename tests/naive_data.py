"""Slow and obvious forms of what `mcfair.data` computes."""


def query_groups(labels, sizes):
    """Number the groups of each query from 0 in order of first appearance; None and "" are groups of their own."""
    codes, begin = [], 0
    for n in sizes:
        seen = []
        for item in range(begin, begin + n):
            key = labels[item] if labels is not None and labels[item] not in (None, "") else ("single", item)
            if key not in seen:
                seen.append(key)
            codes.append(seen.index(key))
        begin += n
    return codes


def by_query(rows):
    """Collect the rows of a table by query: queries in order of first appearance, the rows of a query in order."""
    queries = {}
    for row in rows:
        queries.setdefault(str(row["query"]), []).append(row)
    return queries
