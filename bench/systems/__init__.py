"""One file per system: the program a competent user would write, and the adapter that starts and feeds it."""
