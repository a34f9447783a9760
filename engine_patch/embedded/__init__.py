"""The embedded engine: an SGLang-compatible stand-in on a virtual clock, for people without a GPU.

Scheduling is real (admission, KV slots, retraction, tier switches by the very state machine of the
plugin); step times come from a measured table.  See ``docs/embedded-engine.md``.
"""
