"""The wire format: `stretto.proto`, the code generated from it, and the generator."""
