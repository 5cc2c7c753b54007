"""The language models: one file per wire format behind one seam."""
