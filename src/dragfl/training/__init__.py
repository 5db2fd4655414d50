"""Local training: which samples a client draws, and the loop that learns from them."""
