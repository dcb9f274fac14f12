// What the theme leaves out for keyboards and screen readers.
(() => {
  const SCROLLING = "pre > code, .md-typeset__scrollwrap";

  const reach = () => {
    // Listings and tables that scroll can be scrolled by keys.
    for (const one of document.querySelectorAll(SCROLLING)) {
      if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) {
        one.tabIndex = 0;
      }
    }
    document.querySelectorAll(".md-code__nav").forEach((nav, number) => {
      nav.setAttribute("aria-label", `Listing ${number + 1}`);
    });
  };

  for (const dialog of document.querySelectorAll(".md-search[role=dialog]")) {
    dialog.setAttribute("aria-label", "Search");
  }
  addEventListener("load", reach);
  addEventListener("resize", reach);
})();
