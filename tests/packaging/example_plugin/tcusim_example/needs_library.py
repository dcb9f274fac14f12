"""A backend whose library is not installed: what a user without it is told."""

import a_library_that_is_not_there  # type: ignore[import-not-found]

BACKEND = a_library_that_is_not_there.backend()
