"""CEL as Kubernetes' dynamic resource allocation speaks it; the one importer of the CEL library."""
