"""Servers of our own for one machine: ``roundelay up``, the demo and the tests."""
