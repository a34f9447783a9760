"""The real SGLang server on a CPU: equipment to start it, and the suite that runs the plugin in it.

Everything here but the tests themselves is test equipment: a tiny random model, reference kernels
for SGLang's CPU path, a pinned environment, and ``CpuEngine`` which starts and stops a server.
"""
