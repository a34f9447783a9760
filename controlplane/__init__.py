"""The control plane: poll, step, store, act, publish."""
