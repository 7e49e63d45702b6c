"""What PySpark looks for by itself, to know `format("ottla")`."""
