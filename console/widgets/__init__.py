"""Widgets: each draws one part of a scene."""
