"""Is a matrix unit any good? All that is known of it, tried, measured, and told in five lines."""
