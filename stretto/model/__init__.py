"""The words of the project and what is read from Kubernetes objects: pure values, no I/O.

``objects`` decodes the few fields that scheduling reads; ``quantity`` and ``requests`` turn text
into exact integers; ``selector`` compiles label selectors; ``shaping`` makes of a pod the
:class:`~stretto.model.shape.Shape` that placement works on; ``unit`` holds what the processes say
to each other.
"""
