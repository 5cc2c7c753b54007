"""Tools: how they are declared, found, run within their time, and the ones that are always there."""
