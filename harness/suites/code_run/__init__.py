"""Code that works: programs written by the model, run against the tests of HumanEval, MBPP and HumanEval-X."""
