"""The example application: a small shop, its models and its workflows."""
