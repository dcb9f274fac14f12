// What the theme leaves out for keyboards and screen readers.
(() => {
  const labelSearch = () => {
    for (const dialog of document.querySelectorAll(".md-search[role=dialog]")) {
      dialog.setAttribute("aria-label", "Search");
    }
  };
  // Listings that scroll can be scrolled by keys.
  const reachListings = () => {
    for (const code of document.querySelectorAll("pre > code")) {
      if (code.scrollWidth > code.clientWidth || code.scrollHeight > code.clientHeight) {
        code.tabIndex = 0;
      }
    }
  };
  labelSearch();
  reachListings();
  addEventListener("load", reachListings);
  addEventListener("resize", reachListings);
})();
