"""The paper, to be read beside it: its algorithms, the older methods, the collection of inputs.

`algorithms` holds Algorithms 1 to 3 of Thom and Palm, `hoyer2004` and `potluru2013` the two
methods that the paper builds on, `problems` the inputs that tests, experiments and benchmarks
share. Nothing in here is fast, and nothing outside the command line, the tests and the benchmarks
imports it.
"""
