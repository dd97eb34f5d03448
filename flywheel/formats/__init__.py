"""What comes in: bytes of any trace tool to trajectories, steps, calls and outcomes. Pure: no clock, no I/O.

`reader.py` is the seam (one reader a file), `sniff.py` chooses one by content, `split.py` and `parse.py` find and
decode the records, `messages.py` is what the chat formats share, `assemble.py` joins what readers yield.
"""
