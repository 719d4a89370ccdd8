"""SQL Server as a source: sessions, catalog, types, snapshot, aggregates."""
