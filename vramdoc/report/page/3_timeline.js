// The four levels over events, drawn by uPlot. Drag or the wheel zooms, a click chooses a moment.
"use strict";

const SERIES = [["reserved", []], ["active", []], ["allocated", [6, 3]], ["requested", [2, 3]]];
const MOST_POINTS = 4000; // about two a pixel; more are drawn on top of one another

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The rows between two events; where they are more than can be seen, lowest and highest of each stretch.
function windowed(levels, from, to) {
  const first = Math.max(0, lastAtMost(levels.event, from) - 1);
  const last = Math.min(levels.event.length, lastAtMost(levels.event, to) + 3);
  const stretch = Math.ceil((last - first) / (MOST_POINTS / 2));
  if (stretch <= 1) return [levels.event.slice(first, last), ...SERIES.map(([name]) => levels[name].slice(first, last))];
  const xs = [], ys = SERIES.map(() => []);
  for (let start = first; start < last; start += stretch) {
    const end = Math.min(start + stretch, last);
    xs.push(levels.event[start], levels.event[end - 1]);
    SERIES.forEach(([name], i) => {
      let low = Infinity, high = -Infinity;
      for (let row = start; row < end; row++) { low = Math.min(low, levels[name][row]); high = Math.max(high, levels[name][row]); }
      ys[i].push(low, high);
    });
  }
  return [xs, ...ys];
}

function mark(plot, event, colour, label, dash) {
  const { ctx, bbox } = plot;
  const x = Math.round(plot.valToPos(event, "x", true));
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash(dash);
  ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const right = x > bbox.left + bbox.width - 90 * devicePixelRatio;
  ctx.textAlign = right ? "right" : "left";
  ctx.fillText(label, x + (right ? -4 : 4) * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  ctx.restore();
}

function timeline(host, recording, page) {
  const levels = recording.levels, end = recording.events - 1;
  let whole = true, shown = null;
  const axis = () => ({ stroke: css("--text"), grid: { stroke: css("--grid") }, ticks: { stroke: css("--grid") } });
  const plot = new uPlot({
    width: host.clientWidth, height: 260,
    cursor: { drag: { x: true, y: false }, points: { show: false } },
    scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.18] } },
    axes: [
      { ...axis(), label: "event", space: 90 },
      { ...axis(), size: 84, incrs: Array.from({ length: 36 }, (_, i) => 2 ** (i + 9)), values: (_, ticks) => ticks.map(size) },
    ],
    series: [
      { label: "event", value: (_, v) => (v == null ? "" : `${v}${seconds(recording, v) == null ? "" : `, ${duration(seconds(recording, v))}`}`) },
      ...SERIES.map(([name, dash]) => ({
        label: name, stroke: () => css(`--${name}`), width: name === "reserved" ? 2 : 1.2, dash,
        paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, v) => (v == null ? "" : size(v)),
      })),
    ],
    hooks: {
      setScale: [(u, key) => {
        const { min, max } = u.scales.x;
        if (key !== "x" || !max || shown === `${min} ${max}`) return;
        shown = `${min} ${max}`;
        whole = min <= -1 && max >= end;
        host.dataset.from = Math.round(min); host.dataset.to = Math.round(max);
        // Not here: uPlot is setting scales and would draw the new rows by the old ones' numbers.
        queueMicrotask(() => u.batch(() => { u.setData(windowed(levels, min, max), false); u.setScale("x", { min, max }); }));
      }],
      draw: [(u) => {
        let free = -Infinity; // where the next phase's name has room
        for (const phase of recording.phases) {
          const at = u.valToPos(phase.event, "x");
          mark(u, phase.event, css("--muted"), at >= free ? phase.name : "", [2, 4]);
          if (at >= free) free = at + 10 + 6 * phase.name.length;
        }
        if ("failure" in recording.moments) mark(u, recording.moments.failure, css("--bad"), "out of memory", []);
        mark(u, page.moment, css("--text"), "", [4, 2]);
      }],
    },
  }, windowed(levels, -1, end), host);

  let pressed = null;
  plot.over.addEventListener("mousedown", (e) => (pressed = e.offsetX));
  plot.over.addEventListener("click", (e) => {
    if (pressed !== null && Math.abs(e.offsetX - pressed) < 4) page.choose(Math.round(plot.posToVal(e.offsetX, "x")));
  });
  const zoom = (factor, centre) => {
    const { min, max } = plot.scales.x;
    const span = Math.max(4, Math.min(end + 1, (max - min) * factor));
    const low = Math.max(-1, Math.min(end - span, centre - ((centre - min) / (max - min)) * span));
    plot.setScale("x", { min: low, max: low + span });
  };
  plot.over.addEventListener("wheel", (e) => {
    e.preventDefault();
    zoom(e.deltaY < 0 ? 0.8 : 1.25, plot.posToVal(e.offsetX, "x"));
  }, { passive: false });
  new ResizeObserver(() => plot.setSize({ width: host.clientWidth, height: 260 })).observe(host);
  host.dataset.from = -1; host.dataset.to = end;
  return {
    redraw: () => plot.redraw(false, false),
    restyle: () => { plot.axes.forEach((a) => { a.stroke = () => css("--text"); a.grid.stroke = a.ticks.stroke = () => css("--grid"); }); plot.redraw(false, true); },
    zoom,
    reset: () => plot.setScale("x", { min: -1, max: end }),
    step: () => Math.max(1, Math.round((plot.scales.x.max - plot.scales.x.min) / 200)),
    reveal: (event) => {
      const { min, max } = plot.scales.x;
      if (!whole && (event < min || event > max)) plot.setScale("x", { min: event - (max - min) / 2, max: event + (max - min) / 2 });
    },
  };
}
