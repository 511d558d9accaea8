// Starts the page: the first choice of rows, and what is drawn again after each change.

function refresh(rows = true) {
  if (rows) drawRows(); else byId("count").textContent = byId("count").textContent.replace(/\d+ chosen/, chosenRows().length + " chosen");
  drawFilters();
  drawCharts();
}

function chooseFirst() {
  const whole = DATA.rows.filter(row => row.kind === "configuration"), rows = whole.length ? whole : DATA.rows;
  const study = COLUMNS.some(column => column.place === "point");
  rows.slice(0, study ? rows.length : CHOSEN_AT_FIRST).forEach(row => tables.chosen.add(row));
}

byId("title").textContent = DATA.title;
byId("failed").replaceChildren(...DATA.failed.map(text => make("li", {}, text)));
chooseFirst();
setUpFilters();
setUpCompare();
setUpCharts();
setUpCopies();
drawCompare();
setUpTheme(byId("theme"), refresh);
let resizing = null;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawCharts, 150); });
