"""A backend without its library: the message for a user who lacks it."""

import a_library_that_is_not_there  # type: ignore[import-not-found]

BACKEND = a_library_that_is_not_there.backend()
