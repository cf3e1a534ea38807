// Applies the chosen theme before the page is painted, so that it does not flash.
(function () {
  "use strict";
  try {
    var chosen = localStorage.getItem("onceward-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch (blocked) { /* storage is blocked: the system's theme applies */ }
})();
