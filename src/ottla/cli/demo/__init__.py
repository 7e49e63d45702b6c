"""`ottla demo`: a shop's traffic, a pipeline over it, and a screen that shows both."""
