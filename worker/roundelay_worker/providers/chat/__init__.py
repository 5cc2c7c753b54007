"""Any Chat Completions server."""
