"""Small LETOR files for tests."""

import hashlib

TOY = b"2 qid:7 1:0.5 3:1\n0 qid:7 2:0.1\n1 qid:8 1:0.3\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def rows(*queries, first=1):
    """Return a file with these lists of grades; the queries have the ids `first`, `first + 1`, …"""
    return "".join(
        f"{y} qid:{q} 1:{i}\n" for q, grades in enumerate(queries, first) for i, y in enumerate(grades)
    ).encode()


def sha256(text):
    return hashlib.sha256(text).hexdigest()
