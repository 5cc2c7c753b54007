"""Running a tool's call: validate, execute within its time, and report exactly one outcome."""
