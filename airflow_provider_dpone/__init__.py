"""Airflow provider for table refreshes that are admitted, fenced and observed."""

__version__ = "0.1.0"
