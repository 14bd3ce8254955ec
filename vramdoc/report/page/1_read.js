// Columns out of the page's data: base64 -> inflate -> LEB128 varints. See report/page_data.py, which packs them.
"use strict";

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function column(text) {
  const bytes = await inflated(text);
  let count = 0;
  for (const byte of bytes) if (byte < 128) count++;
  const values = new Float64Array(count); // addresses need 47 bits
  let at = 0, value = 0, factor = 1;
  for (const byte of bytes) {
    value += (byte & 127) * factor;
    if (byte < 128) { values[at++] = value; value = 0; factor = 1; } else factor *= 128;
  }
  return values;
}

function unzigzag(values) {
  return values.map((v) => (v % 2 ? -(v + 1) / 2 : v / 2));
}

function summed(values, start = 0) {
  let sum = start;
  return values.map((v) => (sum += v));
}

// Named columns of one object, decoded at once.
async function columns(object, names) {
  const decoded = await Promise.all(names.map((name) => column(object[name])));
  return Object.fromEntries(names.map((name, i) => [name, decoded[i]]));
}

async function readRecording(data) {
  const raw = await columns(data.levels, ["event", "requested", "allocated", "active", "reserved"]);
  const levels = { event: summed(raw.event, -1) };
  for (const name of ["requested", "allocated", "active", "reserved"]) levels[name] = summed(unzigzag(raw[name]));

  const segments = await columns(data.segments, ["started", "ended", "address", "size", "group"]);
  segments.address = summed(unzigzag(segments.address));

  const a = await columns(data.allocations, [
    "started", "life", "pending", "addresses", "address", "kind", "kind_size", "kind_requested",
    "kind_stream", "kind_site", "stack",
  ]);
  a.started = summed(a.started); // event + 1, so that 0 is "before the trace"
  a.addresses = summed(a.addresses);
  a.kind_stream = unzigzag(a.kind_stream);

  const stacks = await columns(data.allocations.stacks, ["lengths", "codes"]);
  const frames = JSON.parse(new TextDecoder().decode(await inflated(data.allocations.stacks.frames)));
  const ends = summed(stacks.lengths);
  const stackOf = (code) =>
    code === 0 ? [] : Array.from(stacks.codes.subarray(ends[code - 1] - stacks.lengths[code - 1], ends[code - 1]), (f) => frames[f]);

  let times = null;
  if (data.times) {
    times = await columns(data.times, ["event", "us"]);
    times.event = summed(times.event);
    times.us = summed(times.us);
  }
  return { ...data, levels, segments, groups: data.segments.groups, allocations: a, stackOf, times };
}
