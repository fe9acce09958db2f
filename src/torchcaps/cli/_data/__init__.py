"""The actions of `torchcaps data`, one file each."""
