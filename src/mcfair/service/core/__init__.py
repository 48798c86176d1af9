"""The service without threads, a network or a database: operations, ledgers, rules and proofs."""
