"""Is it right: backends against each other, and a tile shape against everything."""
