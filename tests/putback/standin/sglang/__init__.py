"""A stand-in for sglang, with the structure that a plug-in meets, and nothing else."""
