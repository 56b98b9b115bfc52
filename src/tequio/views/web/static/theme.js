"use strict";
// Light or dark follows the system until the reader chooses; the choice stays in this browser.
(() => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  try { const kept = localStorage.getItem("theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* storage may be off */ }
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = now() === "dark" ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`); };
    button.hidden = false;
    name();
    dark.addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = now() === "dark" ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it then lasts as long as the page */ }
      name();
    });
  });
})();
