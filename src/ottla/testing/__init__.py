"""Tools for tests of Ottla and of programs that use it: brokers, and fakes that behave like the real thing."""
