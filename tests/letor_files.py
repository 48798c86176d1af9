"""Small LETOR files for tests."""

TOY = b"2 qid:7 1:0.5 3:1\n0 qid:7 2:0.1\n1 qid:8 1:0.3\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path
