"""Members of consumer groups, in the process of a test and in processes of their own."""
