// Draws timelines: lanes of spans to zoom into. Spans of a lane follow each other, so what is visible is found by
// binary search, and where several fall on one pixel their time is added up by prefix sums: a frame costs pixels, not
// spans. Lanes and charts are painted as dots of one image, which is shown at once: thousands of rectangles would take
// longer. While the picture is moved, columns that stay visible keep what was computed for them.
'use strict';
(() => {
const AXIS = 22, ROW = 20, COUNTER = 42, PROBES = 8, BUCKETS = 4096;
const FAMILIES = [
  ['receive', /^(recv|read|pread|accept|NET_RX)/], ['send', /^(send|NET_TX|write|pwrite|splice|tee|vmsplice|copy_file)/],
  ['wait', /^(p?select|p?poll|epoll|futex|.*sleep|wait|sched|io_)/], ['sync', /sync/], ['connect', /connect|shutdown|sockopt/],
  ['file', /^(open|close|fstat|lseek|f|unlink|mmap|munmap|ioctl)/]];
const familyOf = name => (/sync/.test(name) ? 'sync' : (FAMILIES.find(([, is]) => is.test(name)) || ['other'])[0]);
// Shades of grey for threads on CPUs: the colours are those of calls.
const RUNS = ['run1', 'run2', 'run3'];
const CALLS = ['receive', 'send', 'wait', 'file', 'sync', 'connect', 'other'];

// The first span that ends after a time.
function search(ends, time) {
  let low = 0, high = ends.length;
  while (low < high) { const middle = (low + high) >>> 1; if (ends[middle] > time) high = middle; else low = middle + 1; }
  return low;
}
// The same, not before `low`, near which it is expected.
function ahead(ends, time, low) {
  let step = 1;
  while (low + step < ends.length && ends[low + step] <= time) { low += step; step *= 2; }
  let high = Math.min(low + step, ends.length);
  while (low < high) { const middle = (low + high) >>> 1; if (ends[middle] > time) high = middle; else low = middle + 1; }
  return low;
}
// How much of [from, to) the spans cover, by prefix sums.
function covered(lane, sums, from, to, first, last, isBlocked) {
  if (last <= first) return 0;
  let sum = sums[last] - sums[first];
  const before = from - lane.from[first], after = lane.to[last - 1] - to;
  if (before > 0 && (!isBlocked || lane.what[first] & 1)) sum -= before;
  if (after > 0 && (!isBlocked || lane.what[last - 1] & 1)) sum -= after;
  return sum;
}
const greatest = values => { let most = 0; for (const value of values) if (value > most) most = value; return most; };

const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
function show(ns) {
  const abs = Math.abs(ns);
  if (abs >= 1e9) return (ns / 1e9).toFixed(abs >= 1e10 ? 2 : 4) + ' s';
  if (abs >= 1e6) return (ns / 1e6).toFixed(3) + ' ms';
  return abs >= 1e3 ? (ns / 1e3).toFixed(3) + ' µs' : Math.round(ns) + ' ns';
}
function showBytes(bytes) {
  const [unit, name] = [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [0, 'B']].find(([unit]) => bytes >= unit);
  return Number((bytes / (unit || 1)).toPrecision(3)) + ' ' + name;
}
// A colour '#rrggbb', as much of it as `share` over another, as a dot of an image (bytes R, G, B, A).
function dotOf(colour, share = 1, over = colour) {
  const [front, back] = [colour, over].map(text => parseInt(text.slice(1), 16));
  const mixed = shift => Math.round((front >>> shift & 255) * share + (back >>> shift & 255) * (1 - share));
  return (0xff000000 | mixed(0) << 16 | mixed(8) << 8 | mixed(16)) >>> 0;
}

// Unpack: see data.rs. Returns the bytes that calls moved over time.
function unpack(head, text) {
  let at = 0;
  const next = () => {
    let byte = text.charCodeAt(at++), value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) { byte = text.charCodeAt(at++); value += (byte & 127) * scale; }
    return value;
  };
  const length = Math.max(head.length, 1);
  const reads = head.names.map(name => /^(recv|read|pread)/.test(name));
  const writes = head.names.map(name => /^(send|write|pwrite)/.test(name));
  const moved = { in: new Float64Array(BUCKETS), out: new Float64Array(BUCKETS) };
  for (const lane of head.lanes) {
    const n = lane.count;
    Object.assign(lane, { from: new Float64Array(n), to: new Float64Array(n), what: new Uint32Array(n),
      value: new Float64Array(n), all: new Float64Array(n + 1), blocked: new Float64Array(n + 1) });
    let last = 0;
    for (let i = 0; i < n; i++) {
      const from = last + next(), to = from + next(), what = next(), raw = next();
      last = to;
      const value = raw % 2 ? -(raw + 1) / 2 : raw / 2;
      lane.from[i] = from; lane.to[i] = to; lane.what[i] = what; lane.value[i] = value;
      lane.all[i + 1] = lane.all[i] + (to - from);
      lane.blocked[i + 1] = lane.blocked[i] + (what & 1 ? to - from : 0);
      if (lane.kind === 'thread' && value > 0 && !(what & 2)) {
        const bucket = Math.min(BUCKETS - 1, Math.floor(to / length * BUCKETS)), call = what >>> 2;
        if (reads[call]) moved.in[bucket] += value; else if (writes[call]) moved.out[bucket] += value;
      }
    }
  }
  return moved;
}

function timeline(root) {
const part = name => root.querySelector('.' + name);
const head = JSON.parse(part('head').textContent);
const canvas = part('lanes'), overview = part('overview'), scroll = part('view'), tip = part('told');
const length = Math.max(head.length, 1);
const moved = unpack(head, atob(part('spans').textContent));
const threads = head.lanes.filter(lane => lane.kind === 'thread');
const cpus = head.lanes.filter(lane => lane.kind === 'cpu');

function nameOf(lane, what) {
  if (lane.kind === 'thread') return head.names[what >>> 2] || 'call';
  return lane.kind === 'softirq' ? head.softirqs[(what >>> 2) - 2] : (threads[what >>> 2] || { label: '?' }).label;
}
// The colours of a lane's spans, by their kind `what >>> 2`.
for (const lane of head.lanes) {
  const kinds = { thread: head.names.length, softirq: 4, cpu: threads.length }[lane.kind];
  const colourOf = kind => lane.kind === 'cpu' ? RUNS[kind % RUNS.length] : familyOf(nameOf(lane, kind << 2) || '');
  lane.colours = Array.from({ length: kinds + 1 }, (_, kind) => colourOf(kind));
}

let colours = {};
function readColours() {
  const style = getComputedStyle(root);
  for (const name of ['ground', 'raised', 'ink', 'faint', 'line', 'bad', ...RUNS, ...CALLS])
    colours[name] = style.getPropertyValue('--' + name).trim();
  for (const lane of head.lanes) {
    const dots = share => Uint32Array.from(lane.colours, name => dotOf(colours[name], share, colours.ground));
    [lane.solid, lane.pale] = [dots(1), dots(0.55)];
  }
}

const rows = [];
if (cpus.length) rows.push({ label: 'CPUs used', height: COUNTER, draw: drawLoad });
if (moved.in.some(v => v) || moved.out.some(v => v)) rows.push({ label: 'bytes in, out', height: COUNTER, draw: drawMoved });
for (const counter of head.counters) rows.push({ label: counter.label, height: COUNTER, draw: (top, tall) => drawCounter(counter, top, tall) });
let process = null;
for (const lane of head.lanes) {
  if (lane.kind === 'thread' && lane.process !== undefined && lane.process !== process) {
    process = lane.process;
    rows.push({ label: 'process ' + process, height: ROW, heading: true });
  }
  rows.push({ label: lane.label, height: ROW, lane });
}
let total = AXIS;
for (const row of rows) { row.top = total; total += row.height; }

let from = 0, span = length, width = 0, height = 0, queued = false;
// What is painted: the dots of the lanes, `columns` wide.
let ratio = 1, columns = 0, lines = 0, image = null, dots = null;
// A canvas that is written as an image is kept where the program can write.
const pen = canvas.getContext('2d', { alpha: false, willReadFrequently: true }), small = overview.getContext('2d');
const FONT = '12px system-ui, sans-serif';
pen.font = FONT;
// The names of the rows stand at the left.
const GUTTER = Math.ceil(Math.min(170, rows.reduce((most, row) => Math.max(most, pen.measureText(row.label).width), 60) + 22));
const x = time => GUTTER + (time - from) / span * (width - GUTTER);
const time = px => from + (px - GUTTER) / (width - GUTTER) * span;

// A moment in the unit of all that is seen, with as many digits as steps of `step` ns need.
function moment(ns, step) {
  const [unit, name] = UNITS.find(([unit]) => from + span >= unit) || UNITS[3];
  return (ns / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / Math.max(step, 1)) - 1e-9))) + ' ' + name;
}
function size(context, element, w, h) {
  element.width = Math.round(w * ratio); element.height = Math.round(h * ratio);
  element.style.height = h + 'px';
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}

// A rectangle of dots, as much of it as lies within the image.
function fill(left, right, top, bottom, colour) {
  const first = Math.max(left, 0), last = Math.min(right, columns), end = Math.min(bottom, lines);
  if (last <= first) return;
  for (let y = Math.max(top, 0); y < end; y++) {
    const row = y * columns;
    if (last - first > 8) dots.fill(colour, row + first, row + last);
    else for (let at = row + first; at < row + last; at++) dots[at] = colour;
  }
}
function drawLane(lane, top) {
  const first = search(lane.to, from), end = search(lane.from, from + span), per = span / columns;
  const base = Math.round((top + ROW - 3) * ratio), tall = Math.round((ROW - 5) * ratio);
  // A span is drawn a dot wide at least: many narrower ones would fill a lane that is nearly empty.
  let narrow = end - first > 2 * columns ? end : 0;
  for (let i = first; i < end && narrow <= columns / 30; i++) if (lane.to[i] - lane.from[i] < 0.6 * per) narrow++;
  if (narrow > columns / 30) return drawDense(lane, base, tall);
  for (let i = first; i < end; i++) {
    const kind = lane.what[i] >>> 2, half = lane.what[i] & 1, left = Math.round((lane.from[i] - from) / per);
    const right = Math.max(Math.round((lane.to[i] - from) / per), left + 1);
    fill(left, right, base - (half ? tall >>> 1 : tall), base, half ? lane.pale[kind] : lane.solid[kind]);
    if (right - left > 46 * ratio) labels.push([lane, i, top + ROW - 6]);
  }
}
let labels = [];
function drawLabels() {
  for (const [lane, i, y] of labels) {
    const left = Math.max(x(lane.from[i]), GUTTER), wide = x(lane.to[i]) - left - 8;
    pen.fillStyle = lane.what[i] & 1 ? colours.ink : colours.ground;
    const name = nameOf(lane, lane.what[i]);
    const label = [name, name.split(',')[0]].find(text => pen.measureText(text).width <= wide);
    if (label) pen.fillText(label, left + 4, y);
  }
  labels = [];
}
// More spans than columns: of each column, the share of its time. `column` counts from the picture's beginning, so that
// it is the same one after a move.
function drawDense(lane, base, tall) {
  const per = span / columns, column = Math.round(from / per);
  let kept = lane.kept;
  if (!kept || kept.per !== per || kept.longest.length !== columns) {
    kept = lane.kept = { per, column: column - columns, all: new Float32Array(columns),
      blocked: new Float32Array(columns), longest: new Int32Array(columns) };
  }
  const shift = column - kept.column;
  let [begin, end] = shift > 0 ? [Math.max(columns - shift, 0), columns] : [0, Math.min(-shift, columns)];
  for (const values of [kept.all, kept.blocked, kept.longest]) {
    if (shift > 0 && shift < columns) values.copyWithin(0, shift);
    if (shift < 0 && -shift < columns) values.copyWithin(-shift, 0);
  }
  kept.column = column;
  for (let at = search(lane.to, (column + begin) * per), next = at; begin < end; begin++) {
    const left = (column + begin) * per, right = left + per;
    at = ahead(lane.to, left, at); next = ahead(lane.from, right, Math.max(next, at));
    // The colour is that of the longest among some of them.
    let longest = next > at ? at : -1;
    const step = Math.max(1, Math.floor((next - at) / PROBES));
    for (let i = at; i < next; i += step) if (lane.to[i] - lane.from[i] > lane.to[longest] - lane.from[longest]) longest = i;
    kept.all[begin] = covered(lane, lane.all, left, right, at, next, false) / per;
    kept.blocked[begin] = covered(lane, lane.blocked, left, right, at, next, true) / per;
    kept.longest[begin] = longest;
  }
  for (let at = 0; at < columns; at++) {
    if (kept.longest[at] < 0) continue;
    const kind = lane.what[kept.longest[at]] >>> 2, blocked = kept.blocked[at];
    const ready = Math.max(1, Math.round(Math.min(1, Math.max(kept.all[at] - blocked, 0)) * tall));
    fill(at, at + 1, base - Math.round(Math.min(1, blocked) * tall / 2), base - ready, lane.pale[kind]);
    fill(at, at + 1, base - ready, base, lane.solid[kind]);
  }
}
function area(top, tall, values, most, colour) {
  const dot = dotOf(colour, 0.75, colours.ground), base = Math.round((top + tall - 3) * ratio), full = (tall - 8) * ratio;
  for (let at = 0; at < columns; at++) {
    const high = Math.round(Math.min(1, values[at] / most) * full);
    if (high > 0) fill(at, at + 1, base - high, base, dot);
  }
}
function drawLoad(top, tall) {
  const per = span / columns, values = new Float64Array(columns);
  for (const lane of cpus)
    for (let at = 0, first = search(lane.to, from), last = first; at < columns; at++) {
      const begin = from + at * per;
      first = ahead(lane.to, begin, first); last = ahead(lane.from, begin + per, Math.max(last, first));
      if (last > first) values[at] += covered(lane, lane.all, begin, begin + per, first, last, false) / per;
    }
  area(top, tall, values, cpus.length, colours.run2);
  return 'of ' + cpus.length;
}
function drawMoved(top, tall) {
  const bucket = length / BUCKETS, per = span / columns / bucket, begin = from / bucket;
  const rates = sums => {
    const values = new Float64Array(columns);
    for (let at = 0; at < columns; at++) {
      const left = begin + at * per, right = Math.max(left + per, left + 1e-9);
      let sum = 0;
      for (let i = Math.floor(left); i < Math.min(BUCKETS, Math.ceil(right)); i++)
        sum += sums[i] * (Math.min(right, i + 1) - Math.max(left, i));
      values[at] = sum / ((right - left) * bucket) * 1e9;
    }
    return values;
  };
  const ins = rates(moved.in), outs = rates(moved.out), most = Math.max(greatest(ins), greatest(outs));
  area(top, tall, ins, most, colours.receive);
  area(top, tall, outs, most, colours.send);
  return 'up to ' + showBytes(most) + '/s';
}
// What is between two looks was as at the first of them; of several on one column the most is shown.
function drawCounter(counter, top, tall) {
  const per = span / columns, values = new Float64Array(columns);
  let next = search(counter.at, from);
  for (let at = 0; at < columns; at++) {
    const end = from + (at + 1) * per;
    values[at] = next > 0 ? counter.bytes[next - 1] : 0;
    for (; next < counter.at.length && counter.at[next] <= end; next++) values[at] = Math.max(values[at], counter.bytes[next]);
  }
  const most = greatest(values);
  area(top, tall, values, most, colours.faint);
  return 'up to ' + showBytes(most);
}
function drawAxis() {
  pen.fillStyle = colours.ground; pen.fillRect(0, 0, width, AXIS);
  const rough = span / Math.max(2, (width - GUTTER) / 130), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map(n => n * power).find(n => n >= rough));
  pen.strokeStyle = colours.line; pen.fillStyle = colours.faint;
  pen.beginPath();
  for (let at = Math.ceil(from / step) * step; at <= from + span; at += step) {
    pen.moveTo(x(at), AXIS - 5); pen.lineTo(x(at), height);
    pen.fillText(moment(at, step), x(at) + 3, 13);
  }
  pen.globalAlpha = 0.45; pen.stroke(); pen.globalAlpha = 1;
}
// What was lost is never hidden: hatched over all lanes, for any of them may miss calls there.
function drawLosses() {
  if (!head.losses.length) return;
  pen.save(); pen.beginPath(); pen.rect(GUTTER, AXIS, width - GUTTER, height); pen.clip();
  pen.strokeStyle = colours.bad; pen.fillStyle = colours.bad;
  for (const loss of head.losses) {
    if (loss.to < from || loss.from > from + span) continue;
    const left = Math.max(x(loss.from), GUTTER), right = Math.max(Math.min(x(loss.to), width), left + 1);
    pen.globalAlpha = 0.16; pen.fillRect(left, AXIS, right - left, height);
    pen.globalAlpha = 0.5;
    for (let y = AXIS - (right - left); right - left > 6 && y < height; y += 9) { pen.beginPath(); pen.moveTo(left, y); pen.lineTo(right, y + (right - left)); pen.stroke(); }
    if (right - left > 90) { pen.globalAlpha = 1; pen.fillText(loss.events + ' events lost (CPU ' + loss.cpu + ')', left + 4, AXIS + 12); }
  }
  pen.restore();
}
function draw() {
  queued = false;
  if (!width) return;
  dots.fill(dotOf(colours.ground));
  const offset = scroll.scrollTop, seen = [];
  for (const row of rows) {
    const top = row.top - offset;
    if (top + row.height < AXIS || top > height) continue;
    seen.push([row, top, row.lane ? drawLane(row.lane, top) : row.draw && row.draw(top, row.height)]);
  }
  pen.putImageData(image, Math.round(GUTTER * ratio), 0);
  pen.font = FONT; pen.textBaseline = 'alphabetic';
  drawLabels();
  pen.fillStyle = colours.ground; pen.fillRect(0, 0, GUTTER, height);
  for (const [row, top, scale] of seen) {
    if (scale) { pen.fillStyle = colours.faint; pen.fillText(scale, 12, top + 30, GUTTER - 18); }
    pen.fillStyle = row.heading ? colours.faint : colours.ink;
    pen.fillText(row.label, row.heading ? 4 : 12, top + 14, GUTTER - 18);
  }
  drawLosses(); drawAxis(); drawOverview();
  part('range').textContent = moment(from, span / 100) + ' to ' + moment(from + span, span / 100) + ' (' + show(span) + ')';
}
function drawOverview() {
  small.clearRect(0, 0, width, 36);
  small.fillStyle = colours.raised; small.fillRect(GUTTER, 0, width - GUTTER, 36);
  small.drawImage(background(), GUTTER, 0, width - GUTTER, 36);
  const left = GUTTER + from / length * (width - GUTTER), right = GUTTER + (from + span) / length * (width - GUTTER);
  small.strokeStyle = colours.ink; small.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), 35);
}
let behind = null;
function background() {
  if (behind) return behind;
  behind = document.createElement('canvas'); behind.width = 800; behind.height = 36;
  const ink = behind.getContext('2d'), per = length / 800;
  // CPUs in use; without them, threads in calls.
  const lanes = cpus.length ? cpus : threads.slice(0, 60);
  ink.fillStyle = colours.run2;
  for (let px = 0; px < 800; px++) {
    let sum = 0;
    for (const lane of lanes) {
      const first = search(lane.to, px * per), last = search(lane.from, (px + 1) * per);
      sum += covered(lane, lane.all, px * per, (px + 1) * per, first, last, false) / per;
    }
    const h = Math.min(1, sum / lanes.length) * 34;
    ink.fillRect(px, 36 - h, 1, h);
  }
  for (const loss of head.losses) { ink.fillStyle = colours.bad; ink.fillRect(loss.from / per, 0, Math.max((loss.to - loss.from) / per, 1), 6); }
  return behind;
}
function redraw() { if (!queued) { queued = true; requestAnimationFrame(draw); } }
// Shows `wide` ns from `begin` on, at whole columns: then those that stay visible need not be computed again.
function look(begin, wide) {
  span = Math.min(Math.max(wide, 50), length);
  const per = span / Math.max(columns, 1), last = length - span;
  from = Math.min(Math.max(Math.round(begin / per) * per, 0), last);
  redraw();
}
const move = by => look(from + by, span);
function zoom(factor, centre) { look(centre - (centre - from) * factor, span * factor); }
function layout() {
  width = scroll.clientWidth;
  if (!width) return;
  ratio = window.devicePixelRatio || 1;
  readColours(); behind = null;
  height = Math.min(Math.max(innerHeight * 0.62, 240), 680, Math.max(total + 8, 120));
  scroll.style.height = height + 2 + 'px';
  width = scroll.clientWidth;
  part('spacer').style.height = Math.max(0, total - height) + 'px';
  size(pen, canvas, width, height); size(small, overview, width, 36);
  columns = Math.max(1, canvas.width - Math.round(GUTTER * ratio)); lines = canvas.height;
  image = new ImageData(columns, lines); dots = new Uint32Array(image.data.buffer);
  redraw();
}

function spanAt(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, y = event.clientY - box.top + scroll.scrollTop;
  if (px < GUTTER) return null;
  const row = rows.find(row => y >= row.top && y < row.top + row.height);
  if (!row || !row.lane) return null;
  const near = span / (width - GUTTER), at = time(px), i = search(row.lane.to, at - near);
  return i < row.lane.from.length && row.lane.from[i] <= at + near ? { lane: row.lane, i } : null;
}
function tell(event) {
  const found = spanAt(event);
  tip.hidden = !found;
  if (!found) return;
  const { lane, i } = found, what = lane.what[i], precision = (lane.to[i] - lane.from[i]) / 100;
  const lines = [nameOf(lane, what) + ': ' + show(lane.to[i] - lane.from[i]), 'from ' + moment(lane.from[i], precision) + ' to ' + moment(lane.to[i], precision)];
  if (lane.kind === 'thread') {
    const ready = head.states ? 'ready: kept its CPU' : 'ready or blocked: this system does not tell';
    const state = what & 2 ? 'its end was not seen' : what & 1 ? 'blocked: switched out inside' : ready;
    lines.push(head.returns && !(what & 2) ? state + '; returned ' + lane.value[i] : state);
    lines.push(lane.process === undefined ? lane.label : lane.label + ', process ' + lane.process);
  }
  tip.textContent = lines.join('\n');
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + 'px';
}
let drag = null;
canvas.addEventListener('pointerdown', event => { drag = { x: event.clientX, y: event.clientY, from, top: scroll.scrollTop }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener('pointerup', () => { drag = null; });
canvas.addEventListener('pointermove', event => {
  if (!drag) return tell(event);
  scroll.scrollTop = drag.top - (event.clientY - drag.y);
  look(drag.from - (event.clientX - drag.x) / (width - GUTTER) * span, span);
});
canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
// In a page of which it is only a part, the wheel moves the page until the timeline was clicked.
const isPart = 'part' in root.dataset;
canvas.addEventListener('wheel', event => {
  if (isPart && document.activeElement !== canvas) return;
  event.preventDefault();
  if (event.shiftKey) return move((event.deltaY || event.deltaX) / 800 * span);
  zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) / 250), time(Math.max(event.clientX - canvas.getBoundingClientRect().left, GUTTER)));
}, { passive: false });
canvas.addEventListener('dblclick', event => {
  const found = spanAt(event);
  if (!found) return;
  const { lane, i } = found, margin = Math.max(lane.to[i] - lane.from[i], 100);
  look(lane.from[i] - margin, lane.to[i] - lane.from[i] + 2 * margin);
});
overview.addEventListener('click', event => {
  const at = (event.clientX - overview.getBoundingClientRect().left - GUTTER) / (width - GUTTER) * length;
  look(at - span / 2, span);
});
canvas.addEventListener('keydown', event => {
  const middle = from + span / 2;
  const act = { ArrowLeft: () => move(-span / 5), ArrowRight: () => move(span / 5),
    ArrowUp: () => { scroll.scrollTop -= ROW; }, ArrowDown: () => { scroll.scrollTop += ROW; },
    '+': () => zoom(0.6, middle), '=': () => zoom(0.6, middle), '-': () => zoom(1.6, middle), '0': () => look(0, length) }[event.key];
  if (act) { act(); event.preventDefault(); }
});
part('in').onclick = () => zoom(0.5, from + span / 2);
part('out').onclick = () => zoom(2, from + span / 2);
part('all').onclick = () => look(0, length);
scroll.addEventListener('scroll', redraw);
addEventListener('resize', layout);
// It may stand in a part of the page that is folded.
new ResizeObserver(() => { if (scroll.clientWidth !== width) layout(); }).observe(scroll);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', layout);
const seen = new Set();
for (const lane of head.lanes.filter(lane => lane.kind !== 'cpu')) {
  const kinds = new Uint8Array(lane.colours.length);
  for (const what of lane.what) kinds[what >>> 2] = 1;
  lane.colours.forEach((name, kind) => { if (kinds[kind]) seen.add(name); });
}
if (cpus.length) seen.add('cpu');
const KEYS = { cpu: ['linear-gradient(90deg, var(--run1) 33%, var(--run2) 33% 67%, var(--run3) 67%)', 'thread on a CPU'] };
for (const name of ['cpu', ...CALLS].filter(name => seen.has(name))) {
  const item = document.createElement('span'), swatch = document.createElement('i');
  const [colour, label] = KEYS[name] || ['var(--' + name + ')', name];
  swatch.style.background = colour;
  item.append(swatch, label);
  part('kinds').append(item);
}
layout();
}
document.querySelectorAll('.timeline').forEach(timeline);
})();
