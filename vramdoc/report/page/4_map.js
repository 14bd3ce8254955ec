// The segment map of one moment on a canvas: every group's bytes in rows, to scale. A click or the arrow keys choose a block.
"use strict";

const ROW = 15, GAP = 3, LABEL = 17, ROWS = 12;

function segmentMap(canvas, onChoose) {
  let groups = [], blocks = [], chosen = -1, site = -1, siteOf = () => -1, scale = 1, width = 0;

  // Place every block: its group's first row, and its offset in bytes from there.
  function place() {
    width = canvas.parentElement.clientWidth;
    const total = groups.reduce((sum, group) => sum + group.total, 0);
    scale = Math.max(1, total / (width * ROWS)); // bytes a pixel
    blocks = [];
    let y = 0;
    for (const group of groups) {
      group.top = y + LABEL;
      let offset = 0;
      for (const segment of group.segments) {
        segment.offset = offset;
        for (const block of segment.blocks) blocks.push({ ...block, group, segment, offset: offset + block.address - segment.address });
        offset += segment.size;
      }
      group.rows = Math.max(1, Math.ceil(group.total / (scale * width)));
      y = group.top + group.rows * (ROW + GAP) + 4;
    }
    canvas.width = width * devicePixelRatio;
    canvas.height = Math.max(1, y) * devicePixelRatio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${y}px`;
  }

  // The rectangles of a stretch: one for every row that it touches.
  function* boxes(group, offset, bytes) {
    const line = scale * width;
    for (let at = offset, end = offset + bytes; at < end; ) {
      const row = Math.floor(at / line), stop = Math.min(end, (row + 1) * line);
      yield [(at - row * line) / scale, group.top + row * (ROW + GAP), Math.max(0.5, (stop - at) / scale), ROW];
      if (stop <= at) break;
      at = stop;
    }
  }

  function draw() {
    const c = canvas.getContext("2d");
    c.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    c.clearRect(0, 0, width, canvas.height);
    const colours = Object.fromEntries(["used", "pending", "idle", "request", "text", "line", "chosen"].map((n) => [n, css(`--${n}`)]));
    c.font = "12px system-ui, sans-serif";
    for (const group of groups) {
      c.fillStyle = colours.text;
      const count = group.segments.length, held = group.segments[0].address ? ` in ${count} segment${count > 1 ? "s" : ""}` : "";
      c.fillText(`${group.name}: ${size(group.total)}${held}`, 0, group.top - 5);
    }
    for (const block of blocks) {
      c.fillStyle = block.row >= 0 && site >= 0 && siteOf(block.row) === site ? colours.chosen : colours[block.state];
      for (const box of boxes(block.group, block.offset, block.size)) c.fillRect(...box);
    }
    c.fillStyle = colours.line; // a line where a segment begins
    for (const group of groups)
      for (const segment of group.segments)
        if (segment.size / scale > 6) { const [x, y] = boxes(group, segment.offset, segment.size).next().value; c.fillRect(x, y, 1, ROW); }
    if (chosen >= 0 && chosen < blocks.length) {
      c.strokeStyle = colours.text;
      c.lineWidth = 2;
      for (const [x, y, w, h] of boxes(blocks[chosen].group, blocks[chosen].offset, blocks[chosen].size)) c.strokeRect(x + 1, y + 1, Math.max(1, w - 2), h - 2);
    }
  }

  function blockAt(x, y) {
    const group = groups.find((g) => y >= g.top && y < g.top + g.rows * (ROW + GAP));
    if (!group) return -1;
    const offset = (Math.floor((y - group.top) / (ROW + GAP)) * width + x) * scale;
    return blocks.findIndex((b) => b.group === group && offset >= b.offset && offset < b.offset + b.size);
  }

  function choose(index) {
    if (index < 0 || index >= blocks.length) return;
    chosen = index;
    draw();
    onChoose(blocks[index]);
  }

  canvas.addEventListener("click", (e) => choose(blockAt(e.offsetX, e.offsetY)));
  canvas.addEventListener("mousemove", (e) => {
    const block = blocks[blockAt(e.offsetX, e.offsetY)];
    canvas.title = block ? `${block.state}, ${size(block.size)}` : "";
  });
  canvas.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (step) { e.preventDefault(); choose(Math.max(0, Math.min(blocks.length - 1, chosen + step))); }
  });
  new ResizeObserver(() => { if (canvas.parentElement.clientWidth !== width) { place(); draw(); } }).observe(canvas.parentElement);
  return {
    show: (layout, sites) => {
      const kept = chosen >= 0 && blocks[chosen] ? blocks[chosen] : null;
      groups = layout; siteOf = sites; place();
      chosen = kept ? blocks.findIndex((b) => b.row === kept.row && b.address === kept.address) : -1;
      draw();
      return { blocks: blocks.length, kept: chosen >= 0 };
    },
    highlight: (code) => { site = code; draw(); },
    draw,
  };
}
