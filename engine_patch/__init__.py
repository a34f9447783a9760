"""The engine side of specdeck: wire contract, state machine, SGLang plugin, embedded engine."""
