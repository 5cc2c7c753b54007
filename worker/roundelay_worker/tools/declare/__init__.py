"""``@tool``: from a typed function to a declared tool."""
