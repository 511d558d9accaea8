// The timeline: lanes of bars and levels on one axis of time. Times are nanoseconds.

const NARROW = 480, SHORTEST_NS = 20, ARROW_PX = 3, SECTION_PX = 24, LEVEL_PX = 46, BAR_PX = 13, THIN_PX = 7, THIN_FROM = 3, GAP_PX = 1;
const END = Math.max(...DATA.sections.map(section => section.end));
const scroll = byId("scroll"), view = byId("view"), axis = byId("axis"), tip = byId("tip");
const COLOURS = { stage: 4, transfer: 5, trigger: 6 };
const RUNS = [...new Set(DATA.sections.flatMap(section => section.runs))];
const state = { from: 0, to: END, arrows: true, rows: [], hover: null, names: 150 };

// ---- rows: one per section, group with a summary, and lane that is not folded

// Bars that overlap stand below each other; many of them are thin.
function laneHeight(lane) {
  if (lane.columns) return LEVEL_PX;
  const deep = 1 + lane.place.reduce((most, place) => Math.max(most, place), 0);
  lane.step = deep < THIN_FROM ? BAR_PX : THIN_PX;
  return deep * lane.step + 4;
}

function layOut() {
  state.rows = [];
  let top = 0;
  const add = row => { row.top = top; top += row.height; state.rows.push(row); };
  for (const section of DATA.sections) {
    let gpu = -1;
    section.open ||= new Set([0]);
    add({ kind: "section", section, name: section.name, height: SECTION_PX });
    for (const group of section.groups) {
      if (section.gpus > 1 && group.gpu !== gpu) {
        gpu = group.gpu;
        const lane = section.groups.find(other => other.gpu === gpu && other.name === "CUs").summary;
        add({ kind: "gpu", section, gpu, lane, name: "GPU " + gpu, height: LEVEL_PX });
      }
      if (!section.open.has(group.gpu)) continue;
      const folds = group.summary !== null;
      if (folds) add({ kind: "group", section, group, lane: group.summary, name: group.name, height: LEVEL_PX });
      if (folds && group.folded) continue;
      for (const lane of group.lanes) {
        add({ kind: folds ? "inner" : "lane", section, group, lane, name: lane.name, height: laneHeight(lane) });
      }
    }
  }
  byId("lanes").style.height = top + "px";
  showNames();
}

function showNames() {
  const focused = document.activeElement && document.activeElement.dataset.group;
  byId("names").replaceChildren(...state.rows.map(row => {
    const style = "top:" + row.top + "px;height:" + row.height + "px";
    if (row.kind === "gpu") {
      const { section, gpu } = row, open = section.open;
      return fold(row, style, section.name + "/" + gpu, !open.has(gpu), () => { if (!open.delete(gpu)) open.add(gpu); });
    }
    if (row.kind !== "group") return make("div", { className: row.kind, style, title: row.name }, row.name);
    const group = row.group, key = row.section.name + "/" + group.gpu + "/" + group.name;
    return fold(row, style, key, group.folded, () => { group.folded = !group.folded; }, group.lanes.length);
  }));
  if (focused) [...document.querySelectorAll("#names button")].find(b => b.dataset.group === focused)?.focus();
}

// The name of a row that can be folded, as a button.
function fold(row, style, key, folded, act, lanes) {
  const text = (folded ? "\u25b8 " : "\u25be ") + row.name + (lanes ? " (" + lanes + ")" : "");
  const button = make("button", { type: "button", style, title: row.name, className: row.kind }, text);
  button.setAttribute("aria-expanded", String(!folded));
  button.dataset.group = key;
  button.addEventListener("click", () => { act(); layOut(); draw(); });
  return button;
}

// ---- the axis of time

function span() { return state.to - state.from; }
function width() { return view.clientWidth; }
function x(time) { return (time - state.from) / span() * width(); }
function timeAt(px) { return state.from + px / width() * span(); }

// Show a part of the axis. It never shows time before the begin or after the end.
function show(from, to) {
  const length = Math.min(END, Math.max(SHORTEST_NS, to - from));
  state.from = Math.max(0, Math.min(from, END - length));
  state.to = state.from + length;
  draw();
}

function zoom(factor, at = (state.from + state.to) / 2) {
  const length = Math.min(END, Math.max(SHORTEST_NS, span() * factor));
  const from = at - (at - state.from) * length / span();
  show(from, from + length);
}

function move(part) { show(state.from + part * span(), state.to + part * span()); }

function timeText(ns, step) { return (ns / 1000).toFixed(decimals(step / 1000)) + " us"; }

function drawAxis() {
  const pen = sized(axis, axis.clientWidth, 24), left = state.names;
  const { step, values } = ticks(state.from, state.to, Math.max(2, Math.floor(width() / 75)));
  pen.fillStyle = colourOf("--text");
  pen.strokeStyle = colourOf("--line");
  pen.font = "11px system-ui, sans-serif";
  pen.fillText("time", 6, 16);
  for (const value of values) {
    const at = left + x(value), text = timeText(value, step), wide = pen.measureText(text).width;
    pen.fillRect(at, 18, 1, 6);
    pen.fillText(text, Math.max(left, Math.min(at - wide / 2, left + width() - wide - 2)), 14);
  }
  axis.dataset.ticks = values.length;
  return values;
}

function sized(canvas, wide, high) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

// ---- drawing

function draw() {
  state.names = scroll.clientWidth < NARROW ? 96 : 150;
  byId("frame").style.setProperty("--names", state.names + "px");
  const wide = scroll.clientWidth - state.names, high = scroll.clientHeight;
  view.style.width = wide + "px";
  view.style.height = high + "px";
  const pen = sized(view, wide, high), top = scroll.scrollTop;
  pen.font = "10px system-ui, sans-serif";
  drawGrid(pen, drawAxis(), high);
  const seen = state.rows.filter(row => row.top + row.height >= top && row.top <= top + high);
  for (const row of seen) {
    pen.fillStyle = colourOf("--line");
    pen.fillRect(0, row.top - top, wide, 1);
    if (row.kind === "section") drawSection(pen, row, row.top - top);
    else if (row.lane.columns) drawLevels(pen, row.lane, row.top - top, row.height);
  }
  drawArrows(pen, top);
  const bars = seen.filter(row => row.lane && !row.lane.columns);
  view.dataset.drawn = bars.reduce((sum, row) => sum + drawBars(pen, row, row.top - top), 0);
  view.dataset.from = state.from;
  view.dataset.to = state.to;
}

function drawGrid(pen, values, high) {
  pen.fillStyle = colourOf("--line");
  pen.globalAlpha = 0.45;
  for (const value of values) pen.fillRect(x(value), 0, 1, high);
  pen.globalAlpha = 1;
}

function drawSection(pen, row, y) {
  pen.fillStyle = colourOf("--panel");
  pen.fillRect(0, y + 1, width(), row.height - 1);
  pen.fillStyle = colourOf("--text");
  pen.font = "bold 12px system-ui, sans-serif";
  const time = short(row.section.time / 1000) + " us", text = time + (row.section.note ? "; " + row.section.note : "");
  pen.fillText(pen.measureText(text).width < width() - 12 ? text : time, 6, y + 16);
  pen.fillRect(x(row.section.time), y, 2, row.height);
  pen.font = "10px system-ui, sans-serif";
}

// Runs with the same name have the same colour in all sections.
function runsOf(section) { return section.runs.map(name => RUNS.indexOf(name)); }

function colourOfBar(section, lane, k) {
  const number = lane.item in COLOURS ? COLOURS[lane.item] : runsOf(section)[lane.phase[k]];
  return number % PALETTE.length;
}

// The first bar that can reach into the view: bars are ordered by start, and none is longer than the longest.
function firstVisible(lane, time) {
  if (lane.longest === undefined) lane.longest = lane.start.reduce((most, s, k) => Math.max(most, lane.end[k] - s), 0);
  let low = 0, high = lane.start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.start[middle] < time - lane.longest) low = middle + 1; else high = middle;
  }
  return low;
}

function drawBars(pen, { lane, section }, y) {
  const last = [], high = lane.step - 1;
  let drawn = 0;
  for (let k = firstVisible(lane, state.from); k < lane.start.length && lane.start[k] <= state.to; k++) {
    const left = Math.max(0, x(lane.start[k])), right = Math.min(width(), x(lane.end[k])), place = lane.place[k];
    if (right < 0 || (last[place] !== undefined && right < last[place])) continue;
    const wide = Math.max(1.5, right - left - GAP_PX), colour = PALETTE[colourOfBar(section, lane, k)], above = y + 3 + place * lane.step;
    pen.fillStyle = colour;
    pen.fillRect(left, above, wide, high);
    if (lane.step === BAR_PX && wide > 30) drawLabel(pen, nameOf(lane, k), colour, left + 4, above + 9, wide - 8);
    last[place] = left + 1;
    drawn++;
  }
  return drawn;
}

function nameOf(lane, k) { return lane.labels.length ? lane.labels[k] : lane.item + " " + lane.tag[k]; }

function drawLabel(pen, text, colour, left, y, wide) {
  pen.fillStyle = inkOn(colour);
  if (pen.measureText(text).width <= wide) pen.fillText(text, left, y);
}

function most(lane) {
  if (lane.most === undefined) {
    const columns = Object.values(lane.columns);
    const sums = lane.start.map((_, k) => columns.reduce((sum, column) => sum + column[k], 0));
    lane.largest = sums.reduce((a, b) => Math.max(a, b), 0);
    lane.most = Math.max(lane.largest, lane.peak) || 1;
  }
  return lane.most;
}

function drawLevels(pen, lane, y, height) {
  const columns = Object.values(lane.columns), scale = (height - 6) / most(lane), base = y + height - 1;
  let drawnTo = -1;
  for (let k = 0; k < lane.start.length; k++) {
    if (lane.end[k] < state.from || lane.start[k] > state.to) continue;
    const left = Math.max(0, x(lane.start[k])), right = Math.min(width(), x(lane.end[k]));
    if (right - drawnTo < 0.4) continue;
    let under = 0;
    columns.forEach((column, number) => {
      pen.fillStyle = PALETTE[number % PALETTE.length];
      pen.fillRect(left, base - (under + column[k]) * scale, Math.max(0.6, right - left), column[k] * scale);
      under += column[k];
    });
    drawnTo = right;
  }
  pen.fillStyle = colourOf("--soft");
  if (lane.peak) for (let px = 0; px < width(); px += 8) pen.fillRect(px, base - lane.peak * scale, 4, 1);
  const text = "max " + short(lane.largest) + (lane.peak ? " of " + short(lane.peak) : "") + " " + lane.unit;
  const wide = pen.measureText(text).width;
  pen.fillStyle = colourOf("--back");
  pen.globalAlpha = 0.75;
  pen.fillRect(width() - wide - 8, y + 2, wide + 6, 12);
  pen.globalAlpha = 1;
  pen.fillStyle = colourOf("--text");
  pen.fillText(text, width() - wide - 5, y + 11);
}

// Arrows lie behind the bars. They begin and end at the edges of two rows.
function drawArrows(pen, top) {
  let drawn = 0;
  for (const section of DATA.sections) {
    const seen = section.arrows.filter(([, t, , s]) => s >= state.from && t <= state.to);
    const hovered = state.hover && state.hover.section === section ? state.hover.tag : null;
    const chosen = state.arrows && seen.length * ARROW_PX <= width() ? seen : seen.filter(([tag]) => tag === hovered);
    const row = (name, gpu) => state.rows.find(
      r => r.section === section && r.group && r.group.gpu === gpu && r.lane.name === name && !r.lane.columns);
    for (const [tag, trigger, chunk, start, engine, gpu] of chosen) {
      const from = row(chunk, gpu), to = row(engine, gpu);
      if (!from || !to) continue;
      pen.strokeStyle = colourOf("--text");
      pen.globalAlpha = tag === hovered ? 1 : 0.35;
      pen.lineWidth = tag === hovered ? 2 : 1;
      const up = to.top < from.top, edge = to.top - top + (up ? 3 + to.lane.step : 2);
      drawArrow(pen, x(trigger), from.top - top + (up ? 2 : 3 + from.lane.step), x(start), edge);
      drawn++;
    }
  }
  pen.globalAlpha = 1;
  view.dataset.arrows = drawn;
}

function drawArrow(pen, x1, y1, x2, y2) {
  const angle = Math.atan2(y2 - y1, x2 - x1), head = 5;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.lineTo(x2 - head * Math.cos(angle - 0.5), y2 - head * Math.sin(angle - 0.5));
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - head * Math.cos(angle + 0.5), y2 - head * Math.sin(angle + 0.5));
  pen.stroke();
}

// ---- pointing

function hit(px, py) {
  const y = py + scroll.scrollTop, time = timeAt(px), row = state.rows.find(r => y >= r.top && y < r.top + r.height);
  if (!row || !row.lane) return null;
  if (row.lane.columns) {
    const k = row.lane.start.findIndex((start, i) => start <= time && time < row.lane.end[i]);
    return k < 0 ? null : { row, k, section: row.section, tag: null };
  }
  const slack = span() / width() * 2, lane = row.lane;
  for (let k = firstVisible(lane, time - slack); k < lane.start.length && lane.start[k] <= time + slack; k++) {
    const above = y - row.top - 3 - lane.place[k] * lane.step, inside = above >= -2 && above <= lane.step;
    if (lane.end[k] >= time - slack && inside) return { row, k, section: row.section, tag: lane.tag[k] };
  }
  return null;
}

function describe({ row, k }) {
  const lane = row.lane, step = Math.min(span() / 1000, 10);
  const times = timeText(lane.start[k], step) + " to " + timeText(lane.end[k], step);
  if (lane.columns) {
    const lines = Object.entries(lane.columns).map(([name, column]) => name + ": " + short(column[k]) + " " + lane.unit);
    return [row.section.name + ", " + lane.name, times, ...lines].join("\n");
  }
  const length = lane.end[k] > lane.start[k] ? times + " (" + timeText(lane.end[k] - lane.start[k], step) + ")"
    : timeText(lane.start[k], step);
  const lines = [row.section.name + ", " + lane.name + ": " + nameOf(lane, k), length];
  if (lane.item === "transfer" || lane.item === "trigger") lines.push("tile " + lane.tag[k]);
  if (lane.chunk[k] >= 0) lines.push((lane.item === "workgroup" ? "makes tile " + lane.tag[k] + " of " : "") + "chunk " + lane.chunk[k]);
  if (lane.item === "workgroup") lines.push("run " + row.section.runs[lane.phase[k]]);
  return lines.join("\n");
}

function point(event) {
  const box = view.getBoundingClientRect(), found = hit(event.clientX - box.left, event.clientY - box.top);
  const changed = (found && found.tag) !== (state.hover && state.hover.tag);
  state.hover = found;
  tip.style.visibility = found ? "visible" : "hidden";
  if (found) {
    const frame = byId("frame").getBoundingClientRect();
    tip.textContent = describe(found);
    tip.style.left = Math.max(2, Math.min(event.clientX - frame.left + 12, frame.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = Math.max(2, Math.min(event.clientY - frame.top + 14, frame.height - tip.offsetHeight - 4)) + "px";
  }
  if (changed) draw();
}

let grabbed = null;
view.addEventListener("pointerdown", e => { grabbed = { x: e.clientX, from: state.from }; view.setPointerCapture(e.pointerId); });
view.addEventListener("pointerup", () => { grabbed = null; });
view.addEventListener("pointercancel", () => { grabbed = null; });
view.addEventListener("pointerleave", () => { tip.style.visibility = "hidden"; });
view.addEventListener("pointermove", e => {
  if (!grabbed) { point(e); return; }
  const from = grabbed.from - (e.clientX - grabbed.x) / width() * span();
  show(from, from + span());
});
view.addEventListener("wheel", e => {
  if (!e.ctrlKey && !e.metaKey) return;
  e.preventDefault();
  zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(e.offsetX));
}, { passive: false });
scroll.addEventListener("scroll", draw);
scroll.addEventListener("keydown", e => {
  const act = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, END),
    ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2),
  }[e.key];
  if (act) { e.preventDefault(); act(); }
});
byId("in").addEventListener("click", () => zoom(0.5));
byId("out").addEventListener("click", () => zoom(2));
byId("all").addEventListener("click", () => show(0, END));
byId("arrows").addEventListener("click", () => {
  state.arrows = !state.arrows;
  byId("arrows").setAttribute("aria-pressed", String(state.arrows));
  draw();
});
addEventListener("resize", draw);

// ---- texts around the lanes

function legend() {
  const lanes = DATA.sections.flatMap(section => section.groups.flatMap(group => group.lanes));
  const bars = RUNS.slice(0, PALETTE.length).map((name, k) => [PALETTE[k], name]);
  for (const item of ["stage", "transfer", "trigger"]) {
    if (lanes.some(lane => lane.item === item)) bars.push([PALETTE[COLOURS[item]], item]);
  }
  const levels = ["DRAM traffic", "warps wait for"].map(name => [name, lanes.find(lane => lane.name === name)]).filter(([, lane]) => lane);
  const lines = [["bars", bars], ...levels.map(([name, lane]) => [name, Object.keys(lane.columns).map((column, k) => [PALETTE[k], column])])];
  byId("legend").replaceChildren(...lines.map(([name, entries]) => make("ul", { className: "legend" }, make("li", {}, name + ":"),
    ...entries.map(([colour, text]) => make("li", {}, make("span", { style: "background:" + colour }), text)))));
}

function texts() {
  byId("title").textContent = DATA.title;
  const lanes = DATA.sections.flatMap(section => section.groups.flatMap(group => group.lanes));
  const bars = lanes.reduce((sum, lane) => sum + (lane.columns ? 0 : lane.start.length), 0);
  const arrows = DATA.sections.reduce((sum, section) => sum + section.arrows.length, 0);
  byId("count").textContent = lanes.length + " lanes, " + bars + " bars, " + arrows + " arrows, " + (END / 1000).toFixed(3) + " us";
  byId("phases").replaceChildren(...DATA.sections.map(section => {
    const kernels = section.groups[0].lanes[0], parts = kernels.start.slice(0, 12).map((start, k) =>
      nameOf(kernels, k) + " " + timeText(start, 10) + " to " + timeText(kernels.end[k], 10));
    if (kernels.start.length > 12) parts.push((kernels.start.length - 12) + " more");
    const cut = section.cut ? "; only the first bars are stored" : "";
    const note = section.note ? "; " + section.note : "";
    return make("li", {}, section.name + ": " + timeText(section.time, 10) + " (" + parts.join(", ") + ")" + note + cut);
  }));
}

legend();
texts();
layOut();
setUpTheme(byId("theme"), draw);
