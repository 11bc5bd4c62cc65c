"""Whether this process belongs to agentrun: a command, or the process of a call. Other programs import agentrun.

The module imports nothing, because every command sets this when it starts.
"""

is_owned = False
"""In such a process the import roots of the first project are at the start of `sys.path` (`project_modules.py`)."""
