"""Screens: the live screen, the dialogs and the help."""
