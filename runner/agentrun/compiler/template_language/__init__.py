"""Behind `agentrun.compiler.template`: source → tree → grammar and names → renderer, under a meter."""
