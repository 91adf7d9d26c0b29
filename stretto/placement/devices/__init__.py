"""Devices of dynamic resource allocation: which there are, who has them, and how a claim is met."""
