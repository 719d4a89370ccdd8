"""The demo: the main job on the local stack in a real Airflow, with recoveries and refusals, checked from outside."""
