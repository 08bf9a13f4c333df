// All pictures: curves over time, and bars in lanes with marks. Colours come from the style sheet.

const PAD = { left: 44, right: 8, top: 6, bottom: 18 };
const ROW = 20;
const TALL = 500; // a picture whose axis stands above it as well

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    text: of("--text"), dim: of("--dim"), line: of("--line"), bad: of("--bad"), ground: of("--ground"),
    palette: [0, 1, 2, 3, 4, 5, 6, 7].map((n) => of(`--c${n}`)),
  };
};

// The same name has the same colour wherever it stands.
export function hue(name) {
  let sum = 0;
  for (const letter of String(name)) sum = (31 * sum + letter.codePointAt(0)) % 9973;
  return sum % 8;
}

function begin(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 300;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return { pen, width, height, tint: colours(), top: PAD.top };
}

// A round step with which an axis of `span` gets about `count` ticks.
function step(span, count) {
  const rough = span / count;
  const ten = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough) ?? rough;
}

const short = (value) => Math.abs(value) >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${+value.toFixed(3)}`;

const PERIODS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];

// Ticks are counted back from the end where that is now, otherwise from zero.
function time_axis({ pen, width, height, tint, top }, from, until, place, told) {
  const count = Math.max(2, Math.floor(width / 110));
  const back = ![since, percent, slack, points].includes(told);
  const every = back ? PERIODS_S.find((s) => s >= (until - from) / count) ?? until - from : step(until - from, count);
  pen.fillStyle = tint.dim;
  pen.strokeStyle = tint.line;
  pen.textAlign = "center";
  const first = back ? until - Math.floor((until - from) / every) * every : Math.ceil(from / every) * every;
  for (let at = first; at <= until; at += every) {
    const x = place(at);
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, height - PAD.bottom);
    pen.stroke();
    const middle = Math.min(Math.max(x, 24), width - 24);
    pen.fillText(told(at, every), middle, height - PAD.bottom / 2);
    if (top > PAD.top) pen.fillText(told(at, every), middle, top / 2);
  }
}

const SPANS_S = [120, 300, 600];

// The time axis of the last minutes: as short as what is known fits into, and ten minutes at most.
export const recent = (now_s, first_s) => ({
  from: now_s - (SPANS_S.find((s) => s >= now_s - first_s) ?? SPANS_S.at(-1)), until: now_s, told: ago(now_s),
});

export const ago = (now_s) => (at, every) => {
  const past = now_s - at;
  if (past < every / 2) return "now";
  return every >= 60 || past >= 120 ? `−${+(past / 60).toFixed(1)} min` : `−${+past.toFixed(0)} s`;
};
export const percent = (at) => `${Math.round(100 * at)} %`;
export const points = (at) => Math.abs(at) < 5e-4 ? "0" : `${at < 0 ? "−" : "+"}${Math.abs(100 * at).toFixed(1)}`; // of a difference of shares
export const since = (at) => `${+at.toFixed(3)} s`;
export const slack = (at) => Math.abs(at) < 1e-9 ? "0 s" : at < 0 ? `−${+(-at).toFixed(3)} s` : `+${+at.toFixed(3)} s`;

// Curves over the time [from, until]: `series` are {name, points: [[x, y], ...], dashed}, one colour each by their order.
export function curves(canvas, series, { from, until, told, most = 0, height = 150 }) {
  const area = begin(canvas, height);
  const { pen, width, tint } = area;
  const ys = series.flatMap(({ points }) => points.map(([, y]) => y));
  const top = Math.max(most, ...ys, 1e-9) * 1.05;
  const place = (at) => PAD.left + (width - PAD.left - PAD.right) * (at - from) / Math.max(until - from, 1e-9);
  const level = (y) => height - PAD.bottom - (height - PAD.top - PAD.bottom) * y / top;
  time_axis(area, from, until, place, told);
  const every = step(top, 4);
  pen.textAlign = "right";
  for (let y = 0; y <= top; y += every) {
    pen.strokeStyle = tint.line;
    pen.beginPath();
    pen.moveTo(PAD.left, level(y));
    pen.lineTo(width - PAD.right, level(y));
    pen.stroke();
    pen.fillStyle = tint.dim;
    pen.fillText(short(y), PAD.left - 5, level(y));
  }
  series.forEach(({ points, dashed }, number) => {
    pen.strokeStyle = tint.palette[number % 8];
    pen.lineWidth = 1.6;
    pen.setLineDash(dashed ? [4, 3] : []);
    pen.beginPath();
    let before = null;
    for (const [x, y] of points) {
      if (x < from) continue;
      if (before === null || x - before > 15) pen.moveTo(place(x), level(y)); // a gap is not drawn over
      else pen.lineTo(place(x), level(y));
      before = x;
    }
    pen.stroke();
  });
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

function hatch(pen, x, y, wide, high, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, wide, high);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  for (let at = x - high; at < x + wide; at += 7) {
    pen.moveTo(at, y + high);
    pen.lineTo(at + high, y);
  }
  pen.stroke();
  pen.restore();
}

const led = (name) => !name.includes(" · "); // not a further row of the same lane

// Black or white, whichever stands out from a colour that is written as #rrggbb.
function legible(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

// A text cut to a width, with a mark that it is cut.
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 1 && pen.measureText(`${text.slice(0, kept)}…`).width > width) kept -= 1;
  return `${text.slice(0, kept)}…`;
}

// Bars in lanes over [from, until]: `bars` are {lane, from, until, colour, label, hollow, hatched, edged, sign, outside},
// where `colour` is a number of the palette, and `sign` stands before the bar; `marks` are {at, label, bad, lane} and stand as flags in their lane, or across all of them.
export function lanes(canvas, names, bars, marks, { from, until, told, row = ROW }) {
  const top = row * names.length > TALL ? PAD.bottom : PAD.top;
  const area = { ...begin(canvas, top + PAD.bottom + row * Math.max(names.length, 1)), top };
  const { pen, width, height, tint } = area;
  const longest = Math.max(...names.filter(led).map((name) => pen.measureText(name).width), 0);
  const left = Math.min(Math.max(longest + 8, 60), width * 0.36);
  const place = (at) => left + (width - left - PAD.right) * (at - from) / Math.max(until - from, 1e-9);
  const inside = (x) => Math.min(Math.max(x, left), width - PAD.right);
  const line = new Map(names.map((name, number) => [name, top + number * row]));
  time_axis(area, from, until, place, told);
  pen.textAlign = "left";
  pen.fillStyle = tint.text;
  for (const [name, y] of line) if (row > 8 && led(name)) pen.fillText(fitted(pen, name, left - 8), 0, y + row / 2);
  for (const bar of bars) {
    const y = line.get(bar.lane);
    if (y === undefined || bar.until < from || bar.from > until) continue;
    const x = inside(place(bar.from));
    const wide = Math.max(1, inside(place(bar.until)) - x);
    pen.globalAlpha = bar.faint ? 0.45 : 1;
    if (bar.hollow) {
      pen.strokeStyle = tint.text;
      pen.setLineDash([3, 2]);
      pen.strokeRect(x, y + 3, wide, row - 6);
      pen.setLineDash([]);
    } else {
      const gap = row > 8 ? 2 : 0.5;
      pen.fillStyle = bar.bad ? tint.bad : tint.palette[bar.colour % 8];
      pen.fillRect(x, y + gap, wide, row - 2 * gap);
      if (bar.hatched) hatch(pen, x, y + gap, wide, row - 2 * gap, tint.ground);
      if (bar.edged) {
        const edge = row > 13 ? 2 : 1;
        pen.strokeStyle = tint.bad;
        pen.lineWidth = edge;
        pen.strokeRect(x + edge / 2, y + gap + edge / 2, Math.max(wide - edge, 1), Math.max(row - 2 * gap - edge, 1));
        pen.lineWidth = 1;
      }
    }
    if (bar.sign && row > 8) {
      pen.fillStyle = tint.bad;
      pen.fillText(bar.sign, x > left + 10 ? x - 11 : x + wide + 3, y + row / 2);
    }
    pen.globalAlpha = 1;
    const label = pen.measureText(bar.label ?? "").width + 8;
    if (bar.outside && x + wide + label < width) {
      pen.fillStyle = tint.text;
      pen.fillText(bar.label, x + wide + 4, y + row / 2);
    } else if (bar.label && label < wide) {
      pen.fillStyle = bar.hollow ? tint.text : legible(bar.bad ? tint.bad : tint.palette[bar.colour % 8]);
      pen.fillText(bar.label, x + 4, y + row / 2);
    }
  }
  for (const mark of marks) {
    if (mark.at < from || mark.at > until) continue;
    const x = place(mark.at);
    const y = mark.lane === undefined ? top : line.get(mark.lane) ?? top;
    const low = mark.lane === undefined ? height - PAD.bottom : y + row;
    pen.strokeStyle = pen.fillStyle = mark.bad ? tint.bad : tint.text;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x, low);
    pen.stroke();
    pen.beginPath(); // the flag
    pen.moveTo(x, y);
    pen.lineTo(x + 7, y + 3.5);
    pen.lineTo(x, y + 7);
    pen.fill();
    if (mark.label) {
      const right = x + 10 + pen.measureText(mark.label).width > width;
      pen.textAlign = right ? "right" : "left";
      pen.fillText(mark.label, right ? x - 3 : x + 10, y + 5);
      pen.textAlign = "left";
    }
  }
}

// A legend whose swatches are of the same palette: `entries` are [label, colour].
export function legend(node, entries) {
  const told = entries.map(([label]) => label).join("\n");
  if (node.dataset.told === told) return;
  node.dataset.told = told;
  node.replaceChildren(...entries.map(([label, colour]) => {
    const item = document.createElement("li");
    const swatch = document.createElement("canvas");
    swatch.width = swatch.height = 12;
    const pen = swatch.getContext("2d");
    pen.fillStyle = colours().palette[colour % 8];
    pen.fillRect(0, 0, 12, 12);
    swatch.setAttribute("aria-hidden", "true");
    item.append(swatch, label);
    return item;
  }));
}
