// Ties timeline, map, details and ranking together, and gives every one of them keys.
"use strict";

const by = (id) => document.getElementById(id);

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function theme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = (value) => { root.dataset.theme = value; by("theme").setAttribute("aria-pressed", String(value === "dark")); };
  apply(dark.matches ? "dark" : "light");
  const changed = [];
  by("theme").addEventListener("click", () => { apply(root.dataset.theme === "dark" ? "light" : "dark"); changed.forEach((f) => f()); });
  dark.addEventListener("change", () => { apply(dark.matches ? "dark" : "light"); changed.forEach((f) => f()); });
  return (f) => changed.push(f);
}

function when(recording, event) {
  if (event < 0) return "before the recording";
  if (event >= recording.events) return "not in the recording";
  const at = seconds(recording, event);
  return `event ${event}${at == null ? "" : ` (${duration(at)})`}`;
}

function describe(recording, block) {
  const a = recording.allocations, host = by("block");
  if (!block.address) return host.replaceChildren(element("p", `${block.group.name}: ${size(block.size)}`));
  const rows = [["state", block.state], ["size", size(block.size)], ["address", `0x${block.address.toString(16)}`],
    ["segment", `${size(block.segment.size)} at 0x${block.segment.address.toString(16)}, ${block.group.name}`]];
  let stack = [];
  if (block.row >= 0) {
    const kind = a.kind[block.row], started = a.started[block.row] - 1, ended = started + a.life[block.row];
    rows.splice(2, 0, ["requested", size(a.kind_requested[kind])]);
    rows.push(["allocated", when(recording, started)], ["freed", when(recording, ended)], ["lives", `${a.life[block.row]} events`],
      ["stream", `0x${a.kind_stream[kind].toString(16)}`], ["call site", recording.sites[a.kind_site[kind]]]);
    stack = recording.stackOf(a.stack[block.row]);
  }
  const table = element("dl", "");
  for (const [name, value] of rows) table.append(element("dt", name), element("dd", value));
  const list = element("ol", "", { class: "stack" });
  for (const frame of stack) {
    const [name, place] = frame.split("\n"), item = element("li", "");
    item.append(element("b", name), element("span", ` ${place}`));
    list.append(item);
  }
  host.replaceChildren(table, stack.length ? list : element("p", block.row >= 0 ? "No stack was recorded for it." : "Free inside its segment.", { class: "muted" }));
}

function ranking(recording, host, name, onSite) {
  const uses = recording.ranking[name] || [], most = uses.length ? uses[0].bytes : 1;
  host.replaceChildren(...uses.map((use) => {
    const row = element("tr", ""), button = element("button", recording.sites[use.site], { "aria-pressed": "false", "data-site": use.site });
    const cell = element("td", ""), bar = element("meter", "", { min: 0, max: most, value: use.bytes, "aria-label": "share of the largest" });
    cell.append(button);
    const share = element("td", "");
    share.append(bar);
    row.append(cell, element("td", size(use.bytes), { class: "number" }), element("td", String(use.count), { class: "number" }), share);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      host.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", "false"));
      button.setAttribute("aria-pressed", String(on));
      onSite(on ? use.site : -1);
    });
    return row;
  }));
}

// The failed request and the largest hole as groups of their own, so that the map draws them to its scale.
function requestGroups(recording) {
  const request = recording.request;
  if (!request) return [];
  const group = (name, bytes, state) => ({
    name, total: bytes, segments: [{ address: 0, size: bytes, blocks: [{ row: -1, address: 0, size: bytes, state }] }],
  });
  return [group("the failed request", request.bytes, "request"), ...(request.hole ? [group("the largest hole for it", request.hole, "idle")] : [])];
}

async function start() {
  const onTheme = theme(), source = by("recording");
  if (!source) return;
  const recording = await readRecording(JSON.parse(source.textContent));
  const a = recording.allocations, names = Object.keys(recording.moments);
  const first = "failure" in recording.moments ? "failure" : "peak active";
  const page = { moment: recording.moments[first], choose };
  const map = segmentMap(by("map"), (block) => describe(recording, block));
  const chart = recording.events > 0 ? timeline(by("timeline"), recording, page) : null;
  const slider = by("timeline");

  function choose(event) {
    page.moment = Math.max(-1, Math.min(recording.events - 1, event));
    const levels = levelsAt(recording, page.moment);
    const words = `${when(recording, page.moment)}: ${Object.entries(levels).map(([name, bytes]) => `${name} ${size(bytes)}`).join(", ")}`;
    by("moment").textContent = words;
    slider.dataset.moment = page.moment;
    slider.setAttribute("aria-valuenow", page.moment);
    slider.setAttribute("aria-valuetext", words);
    const layout = layoutAt(recording, page.moment);
    if (page.moment === recording.moments.failure) layout.push(...requestGroups(recording));
    const shown = map.show(layout, (row) => a.kind_site[a.kind[row]]);
    by("map").dataset.blocks = shown.blocks;
    if (!shown.kept) by("block").replaceChildren(element("p", "Choose a block in the map.", { class: "muted" }));
    if (chart) { chart.reveal(page.moment); chart.redraw(); }
  }

  function goTo(name) {
    choose(recording.moments[name]);
    ranking(recording, by("sites"), name, (site) => map.highlight(site));
    map.highlight(-1);
    by("sites-at").textContent = name;
  }

  for (const button of document.querySelectorAll("button[data-moment]")) button.addEventListener("click", () => {
    goTo(button.dataset.moment);
    by("map-section").scrollIntoView({ block: "nearest" });
  });
  slider.addEventListener("keydown", (e) => {
    if (!chart) return;
    const step = e.shiftKey ? 1 : chart.step();
    const keys = {
      ArrowLeft: () => choose(page.moment - step), ArrowRight: () => choose(page.moment + step),
      Home: () => choose(-1), End: () => choose(recording.events - 1),
      "+": () => chart.zoom(0.5, page.moment), "=": () => chart.zoom(0.5, page.moment), "-": () => chart.zoom(2, page.moment),
      0: () => chart.reset(), p: () => goTo("peak active"), f: () => "failure" in recording.moments && goTo("failure"),
    };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  by("reset").addEventListener("click", () => chart && chart.reset());
  onTheme(() => { map.draw(); if (chart) chart.restyle(); });
  goTo(names.includes(first) ? first : "end");
  document.documentElement.dataset.ready = "yes";
}

start();
