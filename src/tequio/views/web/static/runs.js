"use strict";
// The button says how many runs are chosen, and the filters act as soon as one is changed.
const choose = document.getElementById("choose"), compare = document.getElementById("compare");
function count() {
  const chosen = choose.querySelectorAll("input:checked").length;
  compare.disabled = chosen === 0;
  compare.textContent = chosen ? `Compare ${chosen} run${chosen === 1 ? "" : "s"}` : "Choose runs to compare";
}
if (choose) { choose.addEventListener("change", count); addEventListener("pageshow", count); count(); }
for (const select of document.querySelectorAll(".filters select")) select.addEventListener("change", () => select.form.submit());
