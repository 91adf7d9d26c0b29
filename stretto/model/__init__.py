"""Objects, quantities, selectors, requests and shapes: what scheduling reads, without I/O."""
