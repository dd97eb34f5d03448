"""The command line: one function a verb. What a verb does is in `flywheel/<verb>.py`; here are its options."""
