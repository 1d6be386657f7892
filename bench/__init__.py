"""Measurements: ratios taken in one run, never times asserted in a test."""
