"""Flower's PyTorch quickstart on non-IID digits."""
