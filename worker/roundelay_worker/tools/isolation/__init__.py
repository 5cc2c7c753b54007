"""Isolated tools: one child process a call, killed with everything it started."""
