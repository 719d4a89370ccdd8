"""``python -m airflow_provider_dpone.cli``."""

import sys

from airflow_provider_dpone.cli import main

sys.exit(main())
