"""Roundelay beside what a user would pick instead: one machine, one run, state on PostgreSQL."""
