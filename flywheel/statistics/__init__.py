"""What numbers may be believed: rates, intervals, paired tests, power, and the gate's decision. Pure."""
