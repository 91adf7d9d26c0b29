"""The plugins, one module each: names, messages and arithmetic of kube-scheduler 1.37."""
