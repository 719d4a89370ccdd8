"""What differs between the databases a ledger can live in: thin twins over the one code path."""
