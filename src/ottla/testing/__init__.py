"""What tests of Ottla, and of programs that use it, are made of: fakes that keep the promises of the real thing."""
