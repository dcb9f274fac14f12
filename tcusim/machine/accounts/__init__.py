"""How one output was summed, told by the arithmetic itself: as data, text, a page and a drawing."""
