"""mcfair."""
