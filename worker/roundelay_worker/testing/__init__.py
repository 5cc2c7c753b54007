"""Fakes that ship with the worker: real servers and real implementations to test against."""
