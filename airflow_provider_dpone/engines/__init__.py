"""One folder per database engine: sessions, catalog, gate, reader or loader, types. Knows nothing of Airflow."""
