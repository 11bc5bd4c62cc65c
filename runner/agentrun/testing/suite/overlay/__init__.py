"""What a case lays over its recording.

laid_over     all of it, for one case: stubs, faults, a clock
places        where faults strike, and how often
stubs         what tools give in place of running
layer         what is laid over one run of a family
models        the models with faults before them
ports         tools, people, hooks and sinks with stubs and faults before them
wire_faults   replies and errors as the real sender gives them
"""
