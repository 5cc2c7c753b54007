"""The core: what a message is, what happened to it, what to do next. Pure, and exhaustively tested."""
