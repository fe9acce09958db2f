"""What `torchcaps data` does, one file per action: a function of the arguments that gives the exit code."""
