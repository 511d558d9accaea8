"use strict";
// What all pages use: the data, the palette, the theme, texts of numbers, elements.

const DATA = JSON.parse(document.getElementById("data").textContent);

// Six colours of Okabe and Ito, and a grey that is visible on light and dark. Colour-blind readers can distinguish them.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#666666"];

function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function byId(id) { return document.getElementById(id); }

function colourOf(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// Black or white: the one with the higher contrast on this colour (relative luminance of WCAG 2).
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map(part => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) ** 2 < 0.05 * 1.05 ? "#ffffff" : "#000000";
}

function isDark() { return document.documentElement.dataset.theme === "dark"; }

// The theme of the system, and a button that changes it. `changed` is called after each change.
function setUpTheme(button, changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = dark => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    changed();
  };
  button.addEventListener("click", () => set(!isDark()));
  system.addEventListener("change", () => set(system.matches));
  set(system.matches);
}

function decimals(step) { return Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9))); }

// Round numbers between two ends, at most `count`: 1, 2 or 5 times a power of ten apart.
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; k++) found.push(k * step);
  return { step, values: found };
}

// Four significant digits, and never fewer than all digits before the point.
function short(value) {
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en-US");
  return size !== 0 && size < 0.001 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}
