"""Releases: built from DAG files and transfer manifests, verified to the last byte, planned into cells."""
