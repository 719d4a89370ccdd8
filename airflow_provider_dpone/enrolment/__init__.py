"""Enrolment: the marker in a target database and the accepted design of a target."""
