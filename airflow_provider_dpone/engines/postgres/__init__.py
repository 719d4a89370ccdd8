"""PostgreSQL: sessions, catalog, types, one consistent snapshot as Arrow batches, aggregates in that snapshot."""
