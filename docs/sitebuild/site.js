// For readers with a keyboard or a screen reader: wide tables can be scrolled, and the copy buttons of code blocks have names.
const improve = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((table) => {
    table.tabIndex = 0;
    table.setAttribute("role", "group");
    table.setAttribute("aria-label", "Table");
  });
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((buttons, number) => {
    buttons.setAttribute("aria-label", `Code block ${number + 1}`);
  });
};
new MutationObserver(improve).observe(document.documentElement, { childList: true, subtree: true });
improve();
