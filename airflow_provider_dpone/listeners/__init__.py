"""Airflow listeners: bind the running task instance. Hints only; nothing is enforced here."""
