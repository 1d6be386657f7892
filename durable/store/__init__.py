"""The only SQL: one statement a function, every change of state guarded by the table of moves."""
