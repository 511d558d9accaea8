// Charts, drawn by Vega-Lite from the chosen rows; sensitivity and Pareto fronts are computed here.

const BAR_PX = 26, BARS = 24;

function chartConfig() {
  const text = colourOf("--text"), line = colourOf("--line");
  return {
    background: null, font: "system-ui, sans-serif",
    axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, labelLimit: 220 },
    legend: { labelColor: text, titleColor: text, orient: "bottom", columns: isNarrow() ? 1 : 3, labelLimit: 220 },
    title: { color: text }, view: { stroke: line }, range: { category: PALETTE }, mark: { tooltip: true },
  };
}

// Text marks of a chart stay readable for programs that read a page aloud: it has a description.
function chart(id, description, values, spec) {
  const place = byId(id);
  if (!values.length) { place.replaceChildren(make("p", { className: "soft" }, "No row with these values is chosen.")); return; }
  const whole = {
    description, data: { values }, width: "container",
    autosize: { type: "fit-x", contains: "padding" }, config: chartConfig(), ...spec,
  };
  vegaEmbed(place, whole, { mode: "vega-lite", renderer: "svg", actions: false }).catch(problem => { place.textContent = String(problem); });
}

function stacked(id, part, unit) {
  const chosen = chosenRows(), rows = chosen.slice(0, BARS), values = rows.flatMap(row =>
    Object.entries(row[part]).map(([name, value], order) => ({ row: row.label, part: name, value, order })));
  const parts = [...new Set(values.map(value => value.part))];
  chart(id, unit + " of " + rows.length + " rows, by part", values, {
    mark: "bar", height: rows.length * BAR_PX,
    title: chosen.length > BARS ? { text: "the first " + BARS + " of " + chosen.length + " chosen rows", fontWeight: "normal" } : undefined,
    encoding: {
      y: { field: "row", type: "nominal", sort: rows.map(row => row.label), title: null, axis: { labelLimit: isNarrow() ? 110 : 220 } },
      x: { field: "value", type: "quantitative", stack: "zero", title: unit },
      color: { field: "part", type: "nominal", title: null, scale: { domain: parts } },
      order: { field: "order" },
      tooltip: [{ field: "row" }, { field: "part" }, { field: "value", title: unit }],
    },
  });
}

function isNarrow() { return innerWidth < 480; }

// ---- what a figure depends on

function numeric(figure) { return COLUMNS.filter(c => c.number && c.differs && c.listed && c.figure === figure).map(c => c.name); }

function variety(name) { return new Set(chosenRows().map(row => valueOf(row, name))).size; }

function fieldsThatDiffer() { return COLUMNS.filter(c => !c.figure && c.differs && c.listed && c.name !== "kind").map(c => c.name); }

function drawStudy() {
  const y = byId("study-y").value, x = byId("study-x").value, colour = byId("study-colour").value;
  const others = fieldsThatDiffer().filter(name => name !== x);
  const values = chosenRows().filter(row => valueOf(row, x) !== null && valueOf(row, y) !== null).map(row => ({
    x: valueOf(row, x), y: valueOf(row, y), colour: colour ? String(valueOf(row, colour)) : "all", row: row.label,
    line: others.map(name => valueOf(row, name)).join(" / "),
  }));
  const kind = columnOf(x)?.number ? "quantitative" : "nominal";
  chart("chart-study", y + " over " + x, values, {
    height: 260, mark: kind === "nominal" ? { type: "point", filled: true, size: 70, opacity: 1 } : { type: "line", point: { size: 60 } },
    encoding: {
      x: { field: "x", type: kind, title: x, sort: null, ...(kind === "nominal" ? { axis: { labelAngle: isNarrow() ? -90 : 0 } } : { scale: { zero: false } }) },
      y: { field: "y", type: "quantitative", title: y, scale: { zero: false } },
      color: { field: "colour", type: "nominal", title: colour || null, legend: colour ? undefined : null },
      shape: { field: "colour", type: "nominal", legend: null },
      detail: { field: "line" },
      tooltip: [{ field: "row" }, { field: "x", title: x }, { field: "y", title: y }],
    },
  });
  drawSensitivity();
}

// Each numeric field from its least to its greatest value while all other fields stay: the change of the figure.
function sensitivity() {
  const y = byId("study-y").value, rows = chosenRows().filter(row => typeof valueOf(row, y) === "number");
  return numeric(false).map(name => {
    const others = fieldsThatDiffer().filter(other => other !== name), cases = new Map();
    const ends = rows.map(row => valueOf(row, name)).filter(value => value !== null), from = Math.min(...ends), to = Math.max(...ends);
    for (const row of rows) {
      const key = others.map(other => valueOf(row, other)).join("/"), pair = cases.get(key) ?? {};
      if (valueOf(row, name) === from) pair.from = valueOf(row, y);
      if (valueOf(row, name) === to) pair.to = valueOf(row, y);
      cases.set(key, pair);
    }
    const changes = from === to ? [] : [...cases.values()].filter(p => p.from && p.to !== undefined).map(p => 100 * (p.to / p.from - 1)).sort((a, b) => a - b);
    return { name, from, to, cases: changes.length, median: changes[changes.length >> 1], least: changes[0], most: changes[changes.length - 1] };
  }).filter(s => s.cases).sort((a, b) => Math.abs(b.median) - Math.abs(a.median));
}

function drawSensitivity() {
  const percent = value => make("td", { className: "number" }, (value > 0 ? "+" : "") + value.toFixed(2) + " %");
  const rows = sensitivity().map(s => make("tr", {}, make("td", {}, s.name), make("td", { className: "number" }, short(s.from)),
    make("td", { className: "number" }, short(s.to)), make("td", { className: "number" }, s.cases), percent(s.median), percent(s.least), percent(s.most)));
  byId("no-sensitivity").hidden = rows.length > 0;
  byId("sensitivity").replaceChildren(
    make("thead", {}, make("tr", {}, ...["field", "from", "to", "cases", "change of " + byId("study-y").value, "least", "most"].map(text => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows));
}

// ---- Pareto front

function points() {
  const x = byId("pareto-x").value, y = byId("pareto-y").value;
  return chosenRows().map(row => ({ row, x: valueOf(row, x), y: valueOf(row, y) })).filter(p => typeof p.x === "number" && typeof p.y === "number");
}

// The points that no other point beats in one figure without losing in the other one.
function front() {
  const sx = Number(byId("pareto-x-better").value), sy = Number(byId("pareto-y-better").value), all = points();
  const beats = (p, q) => sx * p.x <= sx * q.x && sy * p.y <= sy * q.y && (p.x !== q.x || p.y !== q.y);
  return all.filter(q => !all.some(p => beats(p, q))).sort((p, q) => sx * (p.x - q.x));
}

function drawPareto() {
  const x = byId("pareto-x").value, y = byId("pareto-y").value, best = new Set(front().map(p => p.row));
  const values = points().map(p => ({ x: p.x, y: p.y, row: p.row.label, place: best.has(p.row) ? "on the front" : "behind it" }));
  const axes = {
    x: { field: "x", type: "quantitative", title: x, scale: { zero: false } },
    y: { field: "y", type: "quantitative", title: y, scale: { zero: false } },
  };
  chart("chart-pareto", y + " over " + x + ", " + best.size + " rows on the front", values, {
    height: 280,
    layer: [
      { transform: [{ filter: "datum.place === 'on the front'" }], mark: { type: "line", interpolate: "linear", strokeDash: [4, 3], color: PALETTE[1] }, encoding: axes },
      { mark: { type: "point", filled: true, size: 70, opacity: 1 }, encoding: { ...axes,
        color: { field: "place", type: "nominal", title: null, scale: { domain: ["on the front", "behind it"] } },
        shape: { field: "place", type: "nominal", title: null, scale: { domain: ["on the front", "behind it"] } },
        tooltip: [{ field: "row" }, { field: "x", title: x }, { field: "y", title: y }] } },
    ],
  });
  byId("front").replaceChildren(
    make("thead", {}, make("tr", {}, ...["on the front", x, y].map(text => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...front().map(p => make("tr", {}, make("td", {}, p.row.label),
      make("td", { className: "number" }, short(p.x)), make("td", { className: "number" }, short(p.y))))));
}

function setUpCharts() {
  const figures = numeric(true), fields = fieldsThatDiffer(), numbers = [...figures, ...numeric(false)];
  fill(byId("study-y"), figures, "time, us");
  const swept = numeric(false).filter(name => variety(name) > 1).sort((a, b) => variety(b) - variety(a))[0] ?? "simulation";
  fill(byId("study-x"), fields, swept);
  fill(byId("study-colour"), ["", ...fields], swept !== "simulation" && fields.includes("simulation") ? "simulation" : "");
  fill(byId("pareto-x"), numbers, numbers.includes("DRAM, MB") ? "DRAM, MB" : numbers.find(name => name !== "time, us"));
  fill(byId("pareto-y"), numbers, "time, us");
  for (const id of ["study-y", "study-x", "study-colour"]) byId(id).addEventListener("change", drawStudy);
  for (const id of ["pareto-x", "pareto-y", "pareto-x-better", "pareto-y-better"]) byId(id).addEventListener("change", drawPareto);
  byId("study").hidden = !fields.length || !figures.length;
}

function drawCharts() {
  stacked("chart-times", "times", "time, us");
  stacked("chart-traffic", "traffic", "DRAM, MB");
  if (!byId("study").hidden) drawStudy();
  drawPareto();
}
