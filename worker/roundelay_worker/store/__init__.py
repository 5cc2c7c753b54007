"""The SQL store: one class, two databases."""
