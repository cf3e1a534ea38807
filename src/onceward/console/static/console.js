// Keyboard, copy buttons, theme, menu, row selection, and the live overview. Every page works without it.
(function () {
  "use strict";
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  // ── theme and menu ──────────────────────────────────────────────────────────────────────────
  function toggleTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("onceward-theme", root.dataset.theme); } catch (blocked) { /* not remembered */ }
  }

  function toggleMenu(button) {
    const isOpen = document.body.classList.toggle("menu-open");
    button.setAttribute("aria-expanded", String(isOpen));
  }

  // ── copy ────────────────────────────────────────────────────────────────────────────────────
  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch (refused) { // plain http from another machine: there is no clipboard API
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    button.classList.add("copied");
    announce("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  }

  function announce(text) {
    let region = one("#announcement");
    if (!region) {
      region = document.createElement("p");
      region.id = "announcement";
      region.className = "screen-reader";
      region.setAttribute("role", "status");
      document.body.append(region);
    }
    region.textContent = text;
  }

  // ── rows ────────────────────────────────────────────────────────────────────────────────────
  const rows = () => all("table.data tbody tr");

  function moveTo(step) {
    const list = rows();
    if (!list.length) return;
    const current = list.findIndex((row) => row.classList.contains("current"));
    const next = Math.min(Math.max(current + step, 0), list.length - 1);
    list.forEach((row, n) => row.classList.toggle("current", n === next));
    list[next].scrollIntoView({ block: "nearest" });
    const link = one("[data-row-link], a", list[next]);
    if (link) link.focus({ preventScroll: true });
  }

  function showPicked() {
    const bar = one("[data-bulk]");
    if (!bar) return;
    const count = all('input[name="id"][form="bulk"]:checked').length;
    bar.hidden = count === 0;
    one("[data-bulk-count]", bar).textContent = `${count} selected`;
  }

  // ── events ──────────────────────────────────────────────────────────────────────────────────
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, [data-dismiss]");
    if (!button) return;
    if (button.dataset.copy !== undefined) copy(button);
    else if (button.hasAttribute("data-theme-toggle")) toggleTheme();
    else if (button.hasAttribute("data-help")) one("#help").showModal();
    else if (button.classList.contains("menu-button")) toggleMenu(button);
    else if (button.hasAttribute("data-pause")) togglePause(button);
  });

  document.addEventListener("change", (event) => {
    if (event.target.hasAttribute("data-pick-all")) {
      all('input[name="id"][form="bulk"]').forEach((box) => { box.checked = event.target.checked; });
    }
    if (event.target.matches("form[data-filters] select")) event.target.form.requestSubmit();
    showPicked();
  });

  document.addEventListener("submit", (event) => { // empty filters do not belong into the address
    if (!event.target.matches("form[data-filters]")) return;
    all("input, select", event.target).forEach((input) => { if (!input.value) input.disabled = true; });
  });

  addEventListener("pageshow", () => all("form[data-filters] :disabled").forEach((input) => { input.disabled = false; }));

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) typing.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); one("#find").focus(); }
    else if (event.key === "j") moveTo(1);
    else if (event.key === "k") moveTo(-1);
    else if (event.key === "?") one("#help").showModal();
    else if (event.key === "x") { const box = one("tr.current .pick input"); if (box) { box.click(); } }
  });

  // ── live parts: refreshed while the page is visible and not paused ───────────────────────────
  let paused = false;

  function togglePause(button) {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
  }

  function refresh() {
    if (paused || document.hidden || !window.htmx) return;
    all("[data-live]").forEach((part) => window.htmx.trigger(part, "live"));
  }

  if (one("[data-live]")) {
    setInterval(refresh, Number(one("[data-live]").dataset.live) * 1000);
    document.addEventListener("visibilitychange", refresh);
  }
  const unfinished = one("form[data-continue]"); // a bulk action: the page that shows progress sends the next part
  if (unfinished) unfinished.submit();
  showPicked();
})();
