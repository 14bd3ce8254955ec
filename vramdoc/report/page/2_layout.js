// What lay where after one event: groups of segments with their blocks, in the order of addresses.
"use strict";

const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];

function size(bytes) {
  for (const [unit, factor] of UNITS) if (Math.abs(bytes) >= factor) return `${(bytes / factor).toFixed(2)} ${unit}`;
  return `${bytes} B`;
}

// Index of the last value <= x in an ascending column; -1 where there is none.
function lastAtMost(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function levelsAt(recording, event) {
  const row = Math.max(0, lastAtMost(recording.levels.event, event));
  return Object.fromEntries(["reserved", "active", "allocated", "requested"].map((name) => [name, recording.levels[name][row]]));
}

function seconds(recording, event) {
  const times = recording.times;
  if (!times || event < 0) return null;
  const at = Math.max(0, lastAtMost(times.event, event));
  const next = Math.min(at + 1, times.event.length - 1);
  const span = times.event[next] - times.event[at] || 1;
  return (times.us[at] + ((times.us[next] - times.us[at]) * (event - times.event[at])) / span) / 1e6;
}

function duration(s) {
  return s >= 1 ? `${s.toFixed(3)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(2)} ms` : `${Math.round(s * 1e6)} \u00b5s`;
}

function groupName(group) {
  const stream = group.stream ? `, stream 0x${group.stream.toString(16)}` : "";
  return `${group.private ? `private pool ${group.pool_id.join(".")}, ` : ""}${group.pool}${stream}`;
}

function liveBlocks(recording, event) {
  const a = recording.allocations, moment = event + 1, found = [];
  for (let row = 0; row < a.started.length && a.started[row] <= moment; row++) {
    const ended = a.started[row] + a.life[row];
    if (moment < ended) {
      const pending = moment >= ended - a.pending[row];
      found.push({ row, address: a.addresses[a.address[row]], size: a.kind_size[a.kind[row]], state: pending ? "pending" : "used" });
    }
  }
  return found.sort((x, y) => x.address - y.address);
}

function layoutAt(recording, event) {
  const s = recording.segments, moment = event + 1;
  const groups = recording.groups.map((meta) => ({ name: groupName(meta), total: 0, segments: [] }));
  const open = [];
  for (let i = 0; i < s.started.length; i++) // rows are in the order of addresses
    if (s.started[i] <= moment && moment < s.ended[i]) open.push({ address: s.address[i], size: s.size[i], group: s.group[i], blocks: [] });
  const live = liveBlocks(recording, event);
  let next = 0;
  for (const segment of open) {
    const end = segment.address + segment.size;
    let at = segment.address;
    while (next < live.length && live[next].address < segment.address) next++; // no segment holds it
    for (; next < live.length && live[next].address < end; next++) {
      const block = live[next];
      if (block.address > at) segment.blocks.push({ row: -1, address: at, size: block.address - at, state: "idle" });
      if (block.address >= at) { segment.blocks.push(block); at = block.address + block.size; }
    }
    if (at < end) segment.blocks.push({ row: -1, address: at, size: end - at, state: "idle" });
    groups[segment.group].segments.push(segment);
    groups[segment.group].total += segment.size;
  }
  return groups.filter((group) => group.total > 0);
}
