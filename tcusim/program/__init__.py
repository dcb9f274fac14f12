"""Step programs: the grammar, ways to walk and print them, and the checks that hold them."""
