"use strict";
// Another component has other parameters: its fields are fetched, and what was typed under the same name is kept.
for (const select of document.querySelectorAll("select[data-table]")) select.addEventListener("change", async () => {
  const place = document.querySelector(`[data-fields="${select.dataset.table}"]`), typed = new Map();
  for (const field of place.querySelectorAll("input[name]:not([type=checkbox])")) if (field.value) typed.set(field.name, field.value);
  const answer = await fetch(`/new/fields?${new URLSearchParams({table: select.dataset.table, name: select.value})}`);
  if (!answer.ok) return;
  place.innerHTML = await answer.text();
  for (const field of place.querySelectorAll("input[name]:not([type=checkbox])")) if (typed.has(field.name)) field.value = typed.get(field.name);
  select.closest("details").querySelector("summary .muted")?.replaceChildren(` · ${select.value}`);
});
const mistakes = document.getElementById("mistakes");
if (mistakes) mistakes.focus();
for (const link of document.querySelectorAll("#mistakes a")) link.addEventListener("click", () => {
  const field = document.getElementById(link.hash.slice(1)), home = field && field.closest("details");
  if (home) home.open = true;
  if (field) field.focus();
});
