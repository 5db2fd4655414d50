"""Wrong inputs by kind: what is given, and words that the one line of the error must have."""
