"""A chaos soak: real worker processes and servers, killed at random, and judged by what others saw."""
