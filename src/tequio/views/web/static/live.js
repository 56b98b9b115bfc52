"use strict";
// Follows a running experiment: rounds become points of the curve, selections become counts of the parties.
const live = document.getElementById("live");
if (live && live.dataset.running) {
  const at = id => document.getElementById(id), source = new EventSource(`/events/${live.dataset.run}?from=${live.dataset.from}`);
  const counts = new Map();
  const parties = at("parties");
  for (const row of parties.querySelectorAll("tbody tr")) counts.set(row.cells[0].textContent, Number(row.cells[1].textContent.replaceAll(",", "")));
  const order = (a, b) => (Number(a) - Number(b)) || String(a).localeCompare(String(b));

  function advance(rounds) {
    const last = rounds[rounds.length - 1].round;
    at("round").textContent = last;
    at("progress").value = last;
    charts.chart.grow(rounds);
  }
  function count(chosen) {
    for (const party in chosen) counts.set(party, (counts.get(party) || 0) + chosen[party]);
    if (!parties.dataset.live && parties.querySelector("table")) return;
    const shown = [...counts.keys()].sort(order).slice(0, 500), table = document.createElement("table");
    const cell = (row, tag, text, name) => { const made = document.createElement(tag); made.textContent = text; if (name) made.className = name; if (tag === "th") made.scope = name ? "col" : "row"; row.append(made); };
    const head = table.createTHead().insertRow(), body = table.createTBody();
    cell(head, "th", "party", "party"); cell(head, "th", "chosen", "number");
    for (const party of shown) { const row = body.insertRow(); cell(row, "th", party); cell(row, "td", counts.get(party), "number"); }
    const old = parties.querySelector(".scroll");
    if (old) { old.replaceChildren(table); return; }
    const frame = document.createElement("div");
    frame.className = "scroll"; frame.tabIndex = 0; frame.setAttribute("role", "region"); frame.setAttribute("aria-label", "Table of parties");
    frame.append(table);
    parties.replaceChildren(frame);
  }
  function tell(notes) {
    at("notes-section").hidden = false;
    at("notes").append(...notes.map(note => { const item = document.createElement("li"); item.textContent = note; return item; }));
    while (at("notes").children.length > 20) at("notes").firstChild.remove();
  }
  source.addEventListener("grown", event => {
    const {rounds, chosen, notes} = JSON.parse(event.data);
    if (rounds.length) advance(rounds);
    if (Object.keys(chosen).length) count(chosen);
    if (notes.length) tell(notes);
  });
  for (const end of ["over", "reload"]) source.addEventListener(end, () => { source.close(); location.reload(); });
}
