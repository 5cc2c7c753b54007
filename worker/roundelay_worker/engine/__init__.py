"""One message, from the inbox to its end: accept, open, advance, perform, save."""
