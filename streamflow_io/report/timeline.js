"use strict";
(() => {
const data = JSON.parse(document.getElementById("timeline-data").textContent);
const find = id => document.getElementById(id);
const GUTTER = 236, RIGHT = 104, BAR = 13, STREAM = 8, JOB = 20, LANE = 15, DENSITY = 40, STORAGE = 64, PATH = 24, MOST_PRINTED = 8000;
// More jobs than that are shown step by step, in as few lanes as hold them; a step with few lanes shows them at once.
const MOST_ROWS = 300, FEW_LANES = 8;
const NOWHERE = "not started";
const whole = Math.max(...data.runs.map(run => run.seconds), 0.001);
const several = data.runs.length > 1;
const all = [];
data.runs.forEach((run, number) => run.jobs.forEach(([step, tag, submitted, started, ended, status, onPath, spent, said, streams, commits, location]) => {
  const [name, io] = run.steps[step];
  all.push({ index: all.length, run: number, step: name, io, name: `${name}/${tag}`, submitted, started, ended: ended ?? run.seconds, status, onPath, spent, said, streams, commits,
    location: location === null ? NOWHERE : run.locations[location],
    text: `${run.name} ${name}/${tag} ${status} ${run.locations[location] ?? ""}`.toLowerCase() });
}));
const open = new Map();
let rows = [], tops = [0], width = 1000, chosen = null, printing = false, waitsForFrame = false;

const escaped = text => String(text).replace(/[&<>"']/g, one => `&#${one.charCodeAt(0)};`);
const at = time => GUTTER + Math.min(Math.max(time / whole, 0), 1) * (width - GUTTER - RIGHT);
const seconds = value => `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 1 })} s`;
const cut = (text, most) => text.length <= most ? text : `…${text.slice(1 - most)}`;
const ofRun = (run, text) => several ? `${data.runs[run].name}: ${text}` : text;
const numberOf = run => data.runs.indexOf(run);

function labelled(y, run, text, kind = "", mark = "") {
  const before = mark + (several ? `${data.runs[run].name.slice(0, 11)}: ` : "");
  return `<text class="label ${kind}" x="0" y="${y}"><title>${escaped(ofRun(run, text))}</title>${escaped(before + cut(text, (kind ? 31 : 36) - before.length))}</text>`;
}

function rect(begin, end, y, height, kind, more = "") {
  const x = at(begin), length = at(end) - x;
  return `<rect class="${kind}" x="${x.toFixed(1)}" y="${y}" width="${Math.max(length, 0.8).toFixed(1)}" height="${height}" ${more}/>`;
}

// Rows

function arrange() {
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const jobs = all.filter(job => words.every(word => job.text.includes(word)));
  const byLocation = find("by-location")?.checked ?? false, groups = new Map();
  for (const job of jobs) {
    const name = byLocation ? job.location : job.step;
    if (!groups.has(name)) groups.set(name, data.runs.map(() => []));
    groups.get(name)[job.run].push(job);
  }
  const first = new Map([...groups].map(([name, runs]) => [name, Math.min(...runs.flatMap(some => some.slice(0, 1)).map(job => job.started ?? job.ended))]));
  const ordered = [...groups].sort(byLocation
    ? ([one], [other]) => (one === NOWHERE) - (other === NOWHERE) || one.localeCompare(other, "en", { numeric: true })
    : ([one], [other]) => first.get(one) - first.get(other));
  rows = data.runs.filter(run => run.path.length).map(run => ({ draw: drawPath, height: PATH, run }));
  const byJob = jobs.length <= MOST_ROWS;
  for (const [name, runs] of ordered) runs.forEach((some, run) => {
    if (!some.length) return;
    if (byJob && byLocation) rows.push({ draw: drawTitle, height: JOB, run, name });
    if (byJob) some.forEach((job, index) => rows.push({ draw: drawJob, height: JOB + STREAM * Math.min(job.streams.length, 8), job, begins: index === 0 && !byLocation }));
    else arrangeGroup(name, run, some, groups.size <= FEW_LANES || !byLocation);
  });
  if (!words.length) for (const run of data.runs) for (const storage of run.storages) rows.push({ draw: drawStorage, height: STORAGE, run, storage });
  tops = [0];
  for (const row of rows) tops.push(tops[tops.length - 1] + row.height);
  find("count").textContent = `${jobs.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} jobs` + (byJob ? "" : `; of each ${byLocation ? "location" : "step"} how many wait (grey) and run, each to its own scale; a click shows its jobs`);
  render();
}

function arrangeGroup(name, run, jobs, mayOpen) {
  const key = `${run} ${name}`, lanes = lanesOf(jobs), isOpen = open.get(key) ?? (mayOpen && lanes.length <= FEW_LANES);
  rows.push({ draw: drawDensity, height: DENSITY, key, name, run, jobs, mostRun: most(jobs, runs), mostWait: most(jobs, waits), isOpen });
  if (isOpen) for (const lane of lanes) rows.push({ draw: drawLane, height: LANE, lane });
}

function lanesOf(jobs) {
  // Those that ran one after the other share a lane: as many as ran at a time.
  const lanes = [], free = [];
  for (const job of jobs) {
    if (job.started === null) continue;
    let lane = free.findIndex(until => until <= job.started);
    if (lane < 0) { lane = lanes.length; lanes.push([]); }
    lanes[lane].push(job);
    free[lane] = job.ended;
  }
  return lanes;
}

// Drawing

function drawPath(row, y) {
  let made = labelled(y + 16, numberOf(row.run), "critical path", "strong");
  row.run.path.forEach(([begin, end, text], index) => {
    made += rect(begin, end, y + 4, 16, index % 2 ? "path odd" : "path", `data-say="${escaped(`${text}: ${seconds(end - begin)}, ${begin.toFixed(2)} to ${end.toFixed(2)} s`)}"`);
    const room = at(end) - at(begin);
    if (room > 44) made += `<text class="on" x="${(at(begin) + 4).toFixed(1)}" y="${y + 16}">${escaped(text.length * 6.2 < room - 8 ? text : text.slice(0, Math.max(0, Math.floor(room / 6.2) - 2)) + "…")}</text>`;
  });
  return made;
}

function bars(job, y, height) {
  let made = "";
  if (job.submitted !== null && (job.started ?? job.ended) > job.submitted) made += rect(job.submitted, job.started ?? job.ended, y + 2, height - 4, "wait");
  if (job.started === null) return made;
  made += rect(job.started, job.ended, y, height, `run${job.io ? " io" : ""}${job.status ? " bad" : ""}${job.onPath >= 0.05 ? " critical" : ""}`);
  if (job.spent) {
    let begin = job.started;
    job.spent.forEach((part, kind) => { if (part > 0) made += rect(begin, begin + part, y + height - 4.5, 4.5, `spent${kind}`); begin += part; });
  }
  for (const [time] of job.commits) made += `<path class="commit" d="M${at(time).toFixed(1)} ${y + height - 4}l-4 -9h8z"/>`;
  return made;
}

function thinBars(job, y, most) {
  let made = "";
  job.streams.slice(0, most).forEach(([begin, end, rate], index) => {
    const since = begin ?? job.started, until = end ?? job.ended, top = y + index * STREAM;
    made += rect(since, until, top, 4, "stream");
    if (most > 1) made += `<text class="rate" x="${(at(until) + 3).toFixed(1)}" y="${top + 6}">${escaped(rate)}</text>`;
  });
  return made;
}

function drawTitle(row, y) {
  return `<line class="between" x1="0" x2="${width}" y1="${y}" y2="${y}"/>` + labelled(y + 14, row.run, row.name, "strong");
}

function drawJob(row, y) {
  const job = row.job, end = at(job.ended);
  let made = row.begins ? `<line class="between" x1="0" x2="${width}" y1="${y}" y2="${y}"/>` : "";
  made += labelled(y + 14, job.run, job.name, job.onPath >= 0.05 ? "strong" : "") + `<g data-job="${job.index}">` + bars(job, y + 3, BAR) + thinBars(job, y + 3 + BAR + 1.5, 8) + "</g>";
  if (job.started !== null) made += `<text class="after" x="${(end + 4).toFixed(1)}" y="${y + 13}">${job.status ? `✕ ${escaped(job.status)} ` : ""}${seconds(job.ended - job.started)}</text>`;
  return made;
}

function drawLane(row, y) {
  let made = "", many = null;
  const close = () => {
    if (many && many.count === 1) made += `<g data-job="${many.job.index}">${bars({ ...many.job, submitted: null }, y + 1, LANE - 4)}${thinBars(many.job, y + LANE - 4, 1)}</g>`;
    else if (many) made += rect(many.begin, many.end, y + 1, LANE - 4, many.bad ? "run bad" : many.io ? "run io many" : "run many", `data-say="${many.count} jobs${many.mixed ? "" : ` of ${escaped(many.job.step)}`}, ${many.begin.toFixed(2)} to ${many.end.toFixed(2)} s"`);
    many = null;
  };
  for (const job of row.lane) {
    // What is narrower than two dots is drawn together with its neighbours.
    const narrow = at(job.ended) - at(job.started) < 2;
    if (many && narrow && many.narrow && at(job.started) - at(many.end) < 1.5) { many.end = job.ended; many.count += 1; many.bad ||= Boolean(job.status); many.mixed ||= job.step !== many.job.step; continue; }
    close();
    many = { begin: job.started, end: job.ended, count: 1, job, narrow, bad: Boolean(job.status), io: job.io };
  }
  close();
  return made;
}

const runs = job => [job.started, job.ended];
const waits = job => [job.submitted, job.started ?? job.ended];

function mean(jobs, span) {
  // How many there are in each column of the drawing, in the mean.
  const columns = Math.max(10, Math.floor((width - GUTTER - RIGHT) / 2)), change = new Float64Array(columns + 2), part = new Float64Array(columns + 1);
  for (const job of jobs) {
    const [begin, end] = span(job);
    if (begin === null || end === null) continue;
    const [low, high] = [begin, end].map(time => Math.min(Math.max(time / whole, 0), 1) * columns), first = Math.floor(low), last = Math.floor(high);
    if (first === last) { part[first] += high - low; continue; }
    part[first] += first + 1 - low;
    part[last] += high - last;
    change[first + 1] += 1;
    change[last] -= 1;
  }
  let sum = 0;
  return Array.from({ length: columns }, (_, index) => { sum += change[index]; return Math.max(0, sum + part[index]); });
}

function most(jobs, span) {
  const changes = jobs.flatMap(job => { const [begin, end] = span(job); return begin === null || end === null || end <= begin ? [] : [[begin, 1], [end, -1]]; });
  changes.sort(([one, up], [other, down]) => one - other || up - down);
  let now = 0, found = 0;
  for (const [, change] of changes) { now += change; found = Math.max(found, now); }
  return found;
}

function drawDensity(row, y) {
  const run = mean(row.jobs, runs), wait = mean(row.jobs, waits);
  const failed = row.jobs.filter(job => job.status).length, base = y + DENSITY - 3;
  const outline = (counts, highest, height) => {
    const step = (width - GUTTER - RIGHT) / counts.length;
    return `M${GUTTER} ${base}` + counts.map((count, index) => `V${(base - height * Math.min(1, count / highest)).toFixed(1)}H${(GUTTER + step * (index + 1)).toFixed(1)}`).join("") + `V${base}Z`;
  };
  const told = `${row.jobs.length.toLocaleString("en")} job${row.jobs.length === 1 ? "" : "s"}${failed ? `, ${failed.toLocaleString("en")} not completed` : ""}`;
  return `<line class="between" x1="0" x2="${width}" y1="${y}" y2="${y}"/><g class="step" data-key="${escaped(row.key)}"><rect class="touch" x="0" y="${y}" width="${width}" height="${DENSITY}"/>`
    + labelled(y + 15, row.run, row.name, "strong", row.isOpen ? "▾ " : "▸ ") + `<text class="label" x="14" y="${y + 30}">${told}</text>`
    + `<path class="waits" d="${outline(wait, Math.max(1, row.mostWait), DENSITY - 8)}"/><path class="runs${row.jobs.every(job => job.io) ? " io" : ""}" d="${outline(run, Math.max(1, row.mostRun), (DENSITY - 8) * 0.72)}"/></g>`
    + `<text class="after" x="${width - RIGHT + 4}" y="${y + 15}">${row.mostRun.toLocaleString("en")} run</text><text class="after" x="${width - RIGHT + 4}" y="${y + 30}">${row.mostWait.toLocaleString("en")} wait</text>`;
}

function drawStorage(row, y) {
  const { storage, run } = row, base = y + STORAGE - 6, height = STORAGE - 20;
  const most = Math.max(storage.limit ?? 0, ...storage.admitted.map(([, level]) => level), ...storage.measured, 1e-9);
  const level = value => (base - height * value / most).toFixed(1);
  let way = `M${GUTTER} ${base}`, area = `M${GUTTER} ${base}`;
  for (const [time, value] of storage.admitted) way += `H${at(time).toFixed(1)}V${level(value)}`;
  way += `H${at(run.seconds).toFixed(1)}`;
  const step = run.seconds / storage.measured.length;
  storage.measured.forEach((value, index) => { area += `H${at(index * step).toFixed(1)}V${level(value)}`; });
  area += `H${at(run.seconds).toFixed(1)}V${base}Z`;
  const top = Math.max(...storage.admitted.map(([, value]) => value), 0), moved = Math.max(...storage.measured, 0);
  return `<line class="between" x1="0" x2="${width}" y1="${y}" y2="${y}"/>` + labelled(y + 16, numberOf(run), storage.name, "strong")
    + `<text class="label" x="0" y="${y + 31}">admitted up to ${top.toFixed(1)}${storage.limit === null ? "" : ` of ${storage.limit}`} MB/s (line)</text><text class="label" x="0" y="${y + 45}">measured up to ${moved.toFixed(1)} MB/s (area)</text>`
    + `<path class="measured" d="${area}"/><path class="admitted" d="${way}"/>` + (storage.limit === null ? "" : `<line class="limit" x1="${GUTTER}" x2="${width - RIGHT}" y1="${level(storage.limit)}" y2="${level(storage.limit)}"/>`);
}

function ticks() {
  const rough = whole / 8, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map(one => one * power).find(one => one >= rough * 0.999);
  const found = [];
  for (let time = 0; time <= whole + step * 1e-9; time += step) found.push(Number(time.toPrecision(10)));
  return found;
}

function render() {
  waitsForFrame = false;
  const scroll = find("scroll"), drawing = find("drawing");
  width = Math.max(600, scroll.clientWidth);
  const high = printing ? Math.min(tops[tops.length - 1] + 4, MOST_PRINTED) : tops[tops.length - 1] + 4;
  for (const [id, height] of [["drawing", high], ["axis", 22]]) {
    find(id).setAttribute("width", width);
    find(id).setAttribute("height", height);
    find(id).setAttribute("viewBox", `0 0 ${width} ${height}`);
  }
  const top = printing ? 0 : scroll.scrollTop, bottom = printing ? high : top + scroll.clientHeight;
  let first = 0, last = rows.length;
  while (first < last) { const middle = (first + last) >> 1; if (tops[middle + 1] < top) first = middle + 1; else last = middle; }
  const grid = ticks(), parts = grid.map(time => `<line class="grid" x1="${at(time).toFixed(1)}" x2="${at(time).toFixed(1)}" y1="${top}" y2="${Math.min(bottom, high)}"/>`);
  for (let index = first; index < rows.length && tops[index] < bottom; index += 1) parts.push(rows[index].draw(rows[index], tops[index]));
  drawing.innerHTML = parts.join("");
  find("axis").innerHTML = grid.map(time => `<text class="tick" x="${at(time).toFixed(1)}" y="15">${time.toLocaleString("en", { maximumFractionDigits: 6 })}</text>`).join("") + `<text class="label" x="0" y="15">seconds since the start</text>`;
}

function later() {
  if (!waitsForFrame) { waitsForFrame = true; requestAnimationFrame(render); }
}

function say(element) {
  const group = element.closest("[data-job]"), other = element.closest("[data-say]");
  if (other) return other.dataset.say;
  if (!group) return "";
  const job = all[Number(group.dataset.job)], told = [];
  if (job.submitted !== null && job.started !== null) told.push(`submitted at ${job.submitted.toFixed(2)} s, waited ${seconds(job.started - job.submitted)}`);
  if (job.started !== null) told.push(`ran from ${job.started.toFixed(2)} to ${job.ended.toFixed(2)} s: ${seconds(job.ended - job.started)}`);
  if (job.status) told.push(job.status);
  if (job.onPath >= 0.05) told.push(`${seconds(job.onPath)} on the critical path`);
  if (job.said) told.push(job.said);
  for (const [, , , text] of job.streams) told.push(`read ${text}`);
  for (const [time, text] of job.commits) told.push(`${text}, ${seconds(job.ended - time)} before its end`);
  return `${ofRun(job.run, job.name)}: ${told.join("; ")}`;
}

const scroll = find("scroll");
scroll.addEventListener("scroll", later);
new ResizeObserver(later).observe(scroll);
find("search").addEventListener("input", arrange);
find("by-location")?.addEventListener("change", arrange);
scroll.addEventListener("pointermove", event => {
  const told = say(event.target);
  if (told && !chosen) find("said").textContent = told;
});
scroll.addEventListener("click", event => {
  const step = event.target.closest("[data-key]"), told = say(event.target);
  if (told) { chosen = told; find("said").textContent = told; return; }
  chosen = null;
  if (step) {
    const row = rows.find(one => one.key === step.dataset.key);
    open.set(row.key, !row.isOpen);
    arrange();
  }
});
window.addEventListener("beforeprint", () => { printing = true; document.body.classList.add("printing"); render(); });
window.addEventListener("afterprint", () => { printing = false; document.body.classList.remove("printing"); render(); });
arrange();
})();
