// Values under the pointer, and a line at the same place in every panel with the same horizontal axis.
'use strict';
(() => {
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);

  // An axis: ends in pixels, and in values where it can be read.
  const axis = (text) => {
    const [from, to, low, high, isLog, ...unit] = text.split(' ');
    return { from: Number(from), to: Number(to), low: Number(low), high: Number(high), isLog: isLog === '1',
      unit: unit.join(' '), isRead: isLog !== undefined };
  };
  const valueAt = (axis, pixel) => {
    const share = (pixel - axis.from) / (axis.to - axis.from);
    const value = axis.low + share * (axis.high - axis.low);
    return axis.isLog ? 10 ** value : value;
  };
  const number = (value) => {
    if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en-US');
    return String(Number(value.toPrecision(3)));
  };
  const TIMES = [[0.1, 1, 's'], [1e-3, 1e-3, 'ms'], [1e-6, 1e-6, '\u00b5s'], [0, 1e-9, 'ns']];
  const PREFIXES = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
  // A value with its unit, and the prefix that suits it.
  const words = (value, unit) => {
    const size = Math.abs(value);
    if (unit === 's' && size > 0) {
      const [, factor, name] = TIMES.find(([least]) => size >= least);
      return `${number(value / factor)} ${name}`;
    }
    const [factor, prefix] = (/^(bit\/s|B|B\/s)$/.test(unit) && PREFIXES.find(([least]) => size >= least)) || [1, ''];
    return `${number(value / factor)} ${prefix}${unit}`.trim();
  };

  // The corners of a line: absolute commands M, L, H and V, as the figures have them.
  const corners = (path) => {
    const points = [];
    let x = 0, y = 0;
    for (const [, command, first, second] of path.getAttribute('d').matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
      if (command === 'H') x = Number(first);
      else if (command === 'V') y = Number(first);
      else [x, y] = [Number(first), Number(second)];
      points.push([x, y]);
    }
    return points;
  };

  const panels = [...document.querySelectorAll('svg g.panel')].map((group) => ({
    group,
    svg: group.ownerSVGElement,
    x: axis(group.dataset.x),
    y: axis(group.dataset.y),
    lines: null,
  }));
  const linesOf = (panel) => panel.lines ??= [...panel.group.querySelectorAll('path')]
    .filter((path) => /^((dot )?s\d|fit|s1 many)$/.test(path.getAttribute('class')))
    .map((path) => ({ name: nameOf(panel, path.getAttribute('class')), points: corners(path) }))
    .filter(({ name }) => name);
  const bare = (title) => title.replace(/ \([^()]*\)$/, '');
  const nameOf = (panel, ofClass) => {
    const legend = panel.svg.closest('figure')?.querySelectorAll('.legend li') ?? [];
    const wanted = ofClass.startsWith('dot ') ? `.f${ofClass.at(-1)}:not(.area)` : `.${ofClass.replace(' ', '.')}`;
    const entry = [...legend].find((entry) => entry.querySelector(`svg ${wanted}`));
    // Points that the legend does not name are those of a line.
    if (!entry && ofClass.startsWith('dot ') && panel.group.querySelector('path[class="s1"]')) return null;
    return (entry?.textContent || bare(panel.group.dataset.ytitle)).trim();
  };
  // What the lines of a panel say at a place: those of one name as a range.
  const said = (panel, x) => {
    const values = new Map();
    for (const { name, points } of linesOf(panel)) {
      const point = nearest(points, x);
      if (point) values.set(name, [...(values.get(name) ?? []), valueAt(panel.y, point[1])]);
    }
    return [...values].map(([name, all]) => {
      const [least, most] = [Math.min(...all), Math.max(...all)].map((value) => words(value, panel.y.unit));
      return `${name}: ${least === most ? least : `${least} to ${most}`}`;
    });
  };

  const clear = () => {
    tip.hidden = true;
    document.querySelectorAll('.cross').forEach((line) => line.remove());
  };
  const cross = (panel, share) => {
    const line = document.createElementNS(panel.group.namespaceURI, 'path');
    const x = panel.x.from + share * (panel.x.to - panel.x.from);
    line.setAttribute('class', 'cross');
    line.setAttribute('d', `M${x} ${panel.y.from}V${panel.y.to}`);
    panel.group.append(line);
  };

  const show = (event) => {
    clear();
    const svg = event.target.closest?.('svg');
    const matrix = svg?.getScreenCTM?.();
    if (!matrix) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const within = (axis, pixel) => pixel >= Math.min(axis.from, axis.to) && pixel <= Math.max(axis.from, axis.to);
    const panel = panels.find((one) => one.svg === svg && within(one.x, at.x) && within(one.y, at.y));
    if (!panel) return;
    // Panels below each other are read together.
    const rows = panels.filter((one) => one.svg === svg && one.y.isRead).flatMap((one) => said(one, at.x));
    if (!rows.length) return;
    const share = (at.x - panel.x.from) / (panel.x.to - panel.x.from);
    const { x, xtitle } = panel.group.dataset;
    const isAlike = ({ group }) => group.dataset.x === x && group.dataset.xtitle === xtitle;
    panels.filter((one) => one.svg === svg || isAlike(one)).forEach((one) => cross(one, share));
    const place = panel.x.isRead ? [`${bare(xtitle)}: ${words(valueAt(panel.x, at.x), panel.x.unit)}`] : [];
    tip.replaceChildren(...[...place, ...rows].map((text) => {
      const row = document.createElement('div');
      row.textContent = text;
      return row;
    }));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  };
  // The corner next to a place; none beyond the ends of the line.
  const nearest = (points, x) => {
    let best = null, least = Infinity, most = -Infinity;
    for (const point of points) {
      [least, most] = [Math.min(least, point[0]), Math.max(most, point[0])];
      if (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
    return best && x >= least - 40 && x <= most + 40 ? best : null;
  };

  document.addEventListener('pointermove', show);
  document.addEventListener('pointerleave', clear);
})();
